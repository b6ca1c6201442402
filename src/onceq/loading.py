"""What the command line is given: the application, JSON files, events and parameters, or what is wrong with them."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceq.application import App
from onceq.errors import ConfigurationError
from onceq.queue import MAX_BYTES
from onceq.settings import require

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_app(name: str, template: str | Path) -> App:
    """Import the application; ``src/`` beside the template is its import root, as in Lambda.

    Args:
        name: ``module:name`` of the application.
        template: The template's path.

    Raises:
        ConfigurationError: If it is not there, or cannot be imported: with the lines of the user's own files.
    """
    source = (Path(template).parent / "src").resolve()
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name:
            message = f"--app {name}: there is no module {module_name!r} in {source}"
        else:
            message = f"{name} cannot be imported\n{_told(error, source)}"
        raise ConfigurationError(message) from error
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, App):
        message = f"--app {name}: {module_name} has no onceq.App named {attribute or 'app'!r}"
        raise ConfigurationError(message)
    return app


def _told(error: Exception, source: Path) -> str:
    """Return the error and where in the user's own files it arose: nobody needs importlib's frames, or ours."""
    roots = (source, Path.cwd().resolve())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename, roots)]
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip()


def _is_users(filename: str, roots: Sequence[Path]) -> bool:
    path = Path(filename).resolve()
    # "<frozen importlib>" is no path. The framework lies below src/ and an environment below the project.
    foreign = filename.startswith("<") or "site-packages" in path.parts or path.is_relative_to(Path(__file__).parent)
    return not foreign and any(path.is_relative_to(root) for root in roots)


def read_json(path: str) -> Any:
    """Read a JSON file, or stdin where the path is ``-``.

    Raises:
        ConfigurationError: If it is missing, cannot be read or is not JSON.
    """
    try:
        return json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"there is no file {path}"
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
    except json.JSONDecodeError as error:
        message = f"{_named(path)} is not JSON: {error}"
    except (ValueError, RecursionError):
        message = f"{_named(path)} is not JSON"
    raise ConfigurationError(message)


def read_body(word: str) -> str:
    """Read a message's body, byte for byte: a file's content, stdin where the word is ``-``, else the word itself.

    Raises:
        ConfigurationError: If it is empty, not UTF-8 or larger than SQS takes, or a file that cannot be read.
    """
    if word == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    elif _is_file(word):
        try:
            with Path(word).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            message = f"{word} cannot be read: {error.strerror}"
            raise ConfigurationError(message) from error
    else:
        require(not word.endswith(".json"), f"there is no file {word}")
        data = word.encode(errors="surrogateescape")
    require(data != b"", "--body is empty, and SQS takes no empty body")
    require(len(data) <= MAX_BYTES, f"--body has more than {MAX_BYTES} bytes: SQS takes no more")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = "--body is not UTF-8, and SQS takes text only"
        raise ConfigurationError(message) from error


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # a text that is too long for a name
        return False


def read_event(path: str) -> dict[str, Any]:
    """Read an event as SQS gives it to Lambda.

    Raises:
        ConfigurationError: If it cannot be read, or has no records.
    """
    event = read_json(path)
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        message = f"{_named(path)} is no SQS event: it has no list Records; events/one-payment.json is one"
        raise ConfigurationError(message)
    return event


def read_env_json(path: str | None) -> dict[str, Any]:
    """Read SAM's ``env.json``; without a path the one in this folder, if there is one.

    Raises:
        ConfigurationError: If it cannot be read, or is no object.
    """
    if path is None and not Path("env.json").exists():
        return {}
    path = path or "env.json"
    value = read_json(path)
    if not isinstance(value, dict):
        message = f"{path} must hold an object, as for `sam local invoke --env-vars`"
        raise ConfigurationError(message)
    return value


def parameters_of(words: Sequence[str]) -> dict[str, object]:
    """Read ``NAME=VALUE`` words.

    Raises:
        ConfigurationError: If one has no ``=``.

    Example:
        >>> parameters_of(["BatchSize=1"])
        {'BatchSize': '1'}
    """
    parameters: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            message = f"--parameter {word}: give NAME=VALUE"
            raise ConfigurationError(message)
        parameters[name] = value
    return parameters


def _named(path: str) -> str:
    return "stdin" if path == "-" else path

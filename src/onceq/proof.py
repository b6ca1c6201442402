"""``python -m onceq prove``: the test kit's proof from the shell, with a table and a picture of what breaks the job.

The job's modules are imported inside the environment of the proof, as in Lambda: the clients that they make and the
tables' names that they read at import are the proof's own.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import sys
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from onceq.codec import decode
from onceq.commands import FAILED, USAGE, app_of, fail
from onceq.errors import ConfigurationError, PayloadError
from onceq.job_type import JobType
from onceq.loading import parameters_of, read_env_json, read_json
from onceq.settings import require
from onceq.stand_ins import EXAMPLE, Names, recorded
from onceq.testing.diagnosis import Diagnosis
from onceq.testing.errors import NotEffectivelyOnce
from onceq.testing.ground import environment, find_template
from onceq.testing.proving import prove_effectively_once
from onceq.testing.wording import terminal_columns, wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from onceq.application import App
    from onceq.testing.report import Report, Result

# What the extra has beside what a function has, by the names to import; pytest is not needed here.
NEEDED = ("moto", "yaml", "time_machine")
DEFAULT_TEMPLATE = "template.yaml"
DEFAULT_APP = "app:app"
# What the proof's parameters are called here.
OPTIONS = {
    **{name: f"--{name}" for name in ("app", "effects", "fails", "group", "key", "other", "setup")},
    "parameters": "--parameter",
    "reads": "--read",
    "stamps": "--stamp",
}
# A parameter in an error's words, and what stands behind it where that is what was given.
PARAMETER = re.compile(rf"\b({'|'.join(OPTIONS)})=(?: \([^()]*from the shell: [^()]*\))?(?=([^\s,.:;)]?))")


def prove(options: argparse.Namespace) -> int:
    """Run a proof, and print a line for each scenario, a picture of what breaks the job, and the verdict.

    Args:
        options: The words of the command line.

    Returns:
        0 if the job takes effect once, 1 if it does not, 2 if nothing was counted.

    Raises:
        OnceqError: If the input cannot be used.
    """
    _check_installed()
    payload = _value("--payload", options.payload)
    other = None if options.other is None else _value("--other", options.other)
    answers = _answers(options.answer)
    template = _template(options.template)
    parameters, variables = parameters_of(options.parameter), _variables(read_env_json(options.env_vars))
    table = _Table(sys.stdout, options)
    with ExitStack() as stack:
        world = stack.enter_context(environment(template=template, parameters=parameters, variables=variables))
        stack.enter_context(_quiet(verbose=options.verbose))
        names = Names(_source(template or Path(options.template)))
        job_type, app = _job_and_app(options, names)
        _check_payload(job_type, payload)
        stack.enter_context(_naming_options())
        report = _report(
            lambda **given: prove_effectively_once(job_type, payload, app=app, env=world, other=other, **given),
            effects=stack.enter_context(
                recorded(
                    options.effects,
                    answers,
                    names,
                    reads=options.read,
                    fails=options.fails,
                    key=options.downstream_key,
                )
            ),
            key=options.key,
            group=options.group,
            stamps=options.stamps,
            progress=table.add,
            setup=None if options.setup is None else names.value("--setup", options.setup),
        )
    if _is_uncounted(report):
        return fail(_nothing_counted(report, options), USAGE)
    return _show(report, table, options)


@contextmanager
def _naming_options() -> Iterator[None]:
    """Let an error that names a parameter of the proof name the option."""
    try:
        yield
    except ConfigurationError as error:
        told = PARAMETER.sub(lambda found: f"{OPTIONS[found[1]]}{' ' * bool(found[2])}", str(error))
        raise ConfigurationError(told) from error


def _report(proof: Callable[..., Report], **given: Any) -> Report:
    try:
        return proof(**given)
    except NotEffectivelyOnce as error:
        report: Report = error.report
        return report


# ------------------------------------------------------------------------------------------------- what it is given


def _check_installed() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    require(not missing, f"a proof needs {' and '.join(missing)}: install onceq with its extra [testing]")


def _value(option: str, word: str) -> Any:
    """Read JSON: a file's where the word begins with ``@``, stdin's where it is ``-``, else the word itself."""
    if word == "-" or word.startswith("@"):
        return read_json(word.removeprefix("@"))
    try:
        return decode(word)
    except PayloadError as error:
        message = f"{option} is not JSON: {str(error).removeprefix('not JSON: ')}; a file is @FILE, and stdin is -"
        raise ConfigurationError(message) from error


def _answers(words: Sequence[str]) -> dict[str, Any]:
    answers = {}
    for word in words:
        name, equals, text = word.partition("=")
        require(equals != "", f"--answer {word}: give NAME=JSON, a function's name and what it returns")
        answers[name] = _value(f"--answer {name}", text)
    return answers


def _template(word: str) -> Path | None:
    """Return the template; without one in this folder the nearest above it, or ``None``: the kit's plain one."""
    if Path(word).is_file():
        return Path(word)
    require(word == DEFAULT_TEMPLATE, f"there is no file {word}")
    return find_template()


def _source(template: Path) -> Path:
    """Return the folder from which Lambda imports."""
    return (template.parent / "src").resolve()


def _variables(env_json: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of SAM's ``env.json``: a proof has one environment, so every section counts."""
    for name, section in env_json.items():
        require(isinstance(section, dict), f"env.json: {name} must hold an object of variables")
    return {name: str(value) for section in env_json.values() for name, value in section.items()}


def _job_and_app(options: argparse.Namespace, names: Names) -> tuple[JobType[..., Any], App | None]:
    """Return the job type, and the application that it is a part of, if there is one."""
    if ":" not in options.job:
        app = app_of(options)
        return app.job_types.named(options.job), app
    value = names.value("JOB", options.job)
    if not isinstance(value, JobType):
        message = f"JOB {options.job} is {_article(value)}, and no job type: give a function with @job(…) above it"
        raise ConfigurationError(message)
    if options.app == DEFAULT_APP and importlib.util.find_spec("app") is None:
        return value, None
    app = app_of(options)
    if value not in app.job_types:
        fail(f"{value.name} is not in {options.app}: it is proved alone, without that one's middleware", 0)
        return value, None
    return value, app


def _article(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def _check_payload(job_type: JobType[..., Any], payload: Any) -> None:
    if job_type.source is not None:
        return
    try:
        job_type.load(payload)
    except PayloadError as error:
        message = f"--payload does not fit {job_type.name}: {error}"
        raise ConfigurationError(message) from error


# ------------------------------------------------------------------------------------------------- what is printed


@contextmanager
def _quiet(*, verbose: bool) -> Iterator[None]:
    """Keep what jobs print away from the report, and what they log away altogether: they run again and again."""
    handler = logging.StreamHandler(sys.stderr) if verbose else logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        root.removeHandler(handler)


class _Table:
    """What a person reads: where all of it is asked for, a line for each scenario as it ends, else at the end."""

    def __init__(self, out: TextIO, options: argparse.Namespace) -> None:
        """Write to that stream; where JSON goes there, to a person who waits, if there is one."""
        self._out: TextIO | None = out
        if options.json:
            self._out = sys.stderr if sys.stderr.isatty() else None
        self.columns = terminal_columns()
        self._verbose = options.verbose
        self._added = 0

    def add(self, result: Result) -> None:
        """Write the lines of a scenario; one that fails undisturbed waits, since it may be the input's fault."""
        if self._verbose and (self._added or result.ok):
            self._added += 1
            self.write(result.lines())

    def complete(self, report: Report) -> None:
        """Write the lines that are missing."""
        if not self._added:
            self.write(report.table(verbose=self._verbose))

    def write(self, lines: Iterable[str]) -> None:
        """Write lines as wide as the terminal is; what goes on is indented below its line."""
        if self._out is not None:
            for line in lines:
                self._out.write("\n".join(wrapped(line, self.columns)) + "\n")
            self._out.flush()


def _show(report: Report, table: _Table, options: argparse.Namespace) -> int:
    table.complete(report)
    if options.json:
        sys.stdout.write(f"{json.dumps(report.to_json())}\n")
    elif options.verbose:
        for result in report.results:
            lanes = result.run.timeline.lanes(table.columns, folded=False)
            table.write(["", f"{result.name}:", "", *lanes.splitlines()])
    else:
        table.write(report.picture(table.columns))
    if not options.json:
        table.write(["", *report.verdict()])
    return 0 if report.ok else FAILED


def _is_uncounted(report: Report) -> bool:
    """Whether nothing of ``--effects`` was called undisturbed, whatever else was counted, or nothing counted at all."""
    told = (Diagnosis.NO_EFFECT, Diagnosis.NOTHING_COUNTED)
    return any(finding.diagnosis in told for finding in report.results[0].findings)


def _nothing_counted(report: Report, options: argparse.Namespace) -> str:
    said = f"nothing was counted in an undisturbed run of {report.subject}"
    if options.effects:
        return (
            f"{said}: it called nothing of {', '.join(options.effects)}. Give the name that the job's own module uses, "
            "or a payload with which it has an effect. A function that counts effects is for pytest: effects="
        )
    return f"{said}: say with --effects MODULE:NAME what the job does outside, {EXAMPLE}"

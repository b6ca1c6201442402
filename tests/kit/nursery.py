"""Processes forked from one that has loaded everything: a new Python for each takes a second of a small machine.

``python -m kit.nursery`` reads lines, each the JSON of a `Birth`, and forks a process for each, which runs a module
as ``python -m`` does. On stdout it says ``["started", pid]`` and ``["ended", pid, code]``. It has no thread, so that a
fork is safe, and ends with stdin.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TESTS = Path(__file__).parents[1]
LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Birth:
    """What a process is to run, and with what.

    Args:
        words: The words after ``python -m``.
        folder: The folder in which it runs.
        environment: Its environment, whole.
        files: Paths of its stdin, stdout and stderr.
    """

    words: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    files: tuple[str, str, str]


def run(
    *words: str, folder: Path | None = None, environment: Mapping[str, str], text: str = "", seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m`` with these words to its end, in a process that is forked from this process's nursery."""
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        for file, content in zip(files, (text, "", ""), strict=True):
            file.write_text(content, encoding="utf-8")
        stdin, stdout, stderr = map(str, files)
        birth = Birth(words, str(folder or Path.cwd()), dict(environment), (stdin, stdout, stderr))
        code = _ended(_nursery(os.getpid()), birth, seconds)
        out, err = (file.read_text(encoding="utf-8") for file in files[1:])
    return subprocess.CompletedProcess(list(words), code, out, err)


def _ended(nursery: subprocess.Popen[bytes], birth: Birth, seconds: float) -> int:
    try:
        return _code(nursery, birth, seconds)
    except BaseException:
        # A test's own time limit comes as a signal, too: what it waited for must not answer the next one.
        _nursery.cache_clear()
        nursery.communicate()
        raise


def _code(nursery: subprocess.Popen[bytes], birth: Birth, seconds: float) -> int:
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(json.dumps(asdict(birth)).encode() + b"\n")
    nursery.stdin.flush()
    _, pid = json.loads(nursery.stdout.readline())
    if not select.select([nursery.stdout], [], [], seconds)[0]:
        raise subprocess.TimeoutExpired(list(birth.words), seconds)
    _, ended, code = json.loads(nursery.stdout.readline())
    assert ended == pid
    return int(code)


@cache
def _nursery(_pid: int) -> subprocess.Popen[bytes]:
    """Start the nursery of this process, which it outlives; a process that is forked from this one gets its own."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ONCEQ_"))}
    nursery = subprocess.Popen(
        [sys.executable, "-m", "kit.nursery"],
        env=plain | {"PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    atexit.register(nursery.communicate)  # which closes its stdin, and waits for it
    return nursery


# -------------------------------------------------------------------------------------------- the process that forks


def main() -> None:
    """Fork what is asked for, until stdin ends; in what was forked, run it."""
    import moto.dynamodb.models
    import moto.s3.models
    import moto.sqs.models  # noqa: F401

    import onceq.cli
    import onceq.dev  # noqa: F401
    from onceq.client import forget_session, make_client
    from onceq.local import AWS_VARIABLES, quicken_moto, replaced_environment

    quicken_moto()
    with replaced_environment(os.environ | AWS_VARIABLES):
        for service in ("dynamodb", "sqs", "s3"):
            make_client(service, 1).close()
    forget_session()
    gc.freeze()  # what is shared stays shared
    birth = _wait()
    if birth is not None:
        _live(birth)


def _wait() -> dict[str, Any] | None:
    """Fork until stdin ends; return what to run in what was forked, and nothing in the nursery itself."""
    waiting, living = b"", set[int]()
    while True:
        ready = select.select([0], [], [], LOOK_SECONDS)[0]
        reap(living)
        if not ready:
            continue
        data = os.read(0, 65_536)
        if not data:
            for pid in living:
                os.kill(pid, signal.SIGKILL)
            return None
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                return json.loads(line)  # type: ignore[no-any-return]  # as it was written
            living.add(pid)
            say(["started", pid])


def reap(living: set[int]) -> None:
    """Say which of these have ended, and how, and take them out."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            living.discard(ended[0])
            say(["ended", ended[0], os.waitstatus_to_exitcode(ended[1])])
    except ChildProcessError:
        pass  # there is none


def _live(birth: Mapping[str, Any]) -> None:
    """Become what a new Python would be; it ends as one, too, when this returns or raises."""
    for number, (path, flags) in enumerate(
        zip(birth["files"], (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND), strict=True)
    ):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(birth["folder"])
    os.environ.clear()
    os.environ.update(birth["environment"])
    time.tzset()
    # As `python -m` has it: the folder, what the environment names, the rest; and not what the nursery's own named.
    named = birth["environment"].get("PYTHONPATH", "")
    rest = [path for path in sys.path[1:] if Path(path) != TESTS]
    sys.path[:] = [birth["folder"], *filter(None, named.split(os.pathsep)), *rest]
    module, *sys.argv[1:] = birth["words"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def say(words: list[Any]) -> None:
    """Tell whoever started this a line."""
    os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    main()

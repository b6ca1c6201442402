"""`onceq up` as a process of its own, and the words that it printed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kit.project import wait_until
from onceq.template import declared_environment, load_template, parameter_of

if TYPE_CHECKING:
    from pathlib import Path

LAST_LINE = "Ctrl-C stops."


def here(values: dict[str, str]) -> dict[str, str]:
    """Return values with this machine's address in the place of its name inside a container, as the bridge leads."""
    return {name: value.replace("//host.docker.internal:", "//127.0.0.1:") for name, value in values.items()}


@dataclass
class Up:
    """The process and its folder; its output goes to the file `stdout` there."""

    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes]

    def output(self) -> str:
        """Return what it printed so far."""
        return (self.folder / "stdout").read_text(encoding="utf-8")

    def wait(self) -> None:
        """Wait until it has printed everything."""

        def is_up() -> bool:
            assert self.process.poll() is None, self.output()
            return LAST_LINE in self.output()

        wait_until(is_up, "the services are up")

    def command(self, *, linux: bool = False) -> str:
        """Return one of the two commands that it printed, as it stands."""
        commands = re.findall(r"(?:^  .*\\\n)+^  .*\n", self.output(), re.MULTILINE)
        assert len(commands) == 2, self.output()
        return str(commands[linux])

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the printed command, for a process outside a container."""
        words = shlex.split(self.command().replace("\\\n", " "))
        return here(dict(word.split("=", 1) for word in words[words.index("--parameter-overrides") + 1 :]))

    def sam_environment(self, function: str) -> dict[str, str]:
        """Return what SAM makes of the file and the printed parameters: the file first, then the template."""
        template = load_template(self.folder / "template.yaml")
        file = json.loads((self.folder / ".onceq" / "sam.json").read_text(encoding="utf-8"))[function]
        given = self.parameters()
        return {
            name: file[name] if name in file else given.get(parameter_of(template, value), "")
            for name, value in declared_environment(template, function).items()
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command of onceq in the folder."""
        return subprocess.run(
            [sys.executable, "-m", "onceq", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

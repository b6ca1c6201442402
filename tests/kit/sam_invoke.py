"""What `.venv-sam` runs: the SAM CLI with the words it is given, up to the container that it would start.

Whatever it read and resolved for that container is printed as JSON instead. No container runtime is asked for.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest.mock import MagicMock, patch

from samcli.cli.main import cli  # type: ignore[import-not-found]
from samcli.commands.local.cli_common.invoke_context import InvokeContext  # type: ignore[import-not-found]
from samcli.local.lambdafn.runtime import LambdaRuntime  # type: ignore[import-not-found]


def invoke(_runtime: object, config: Any, event: str, *_words: object, **options: Any) -> None:
    """Tell what the container would be."""
    told = {
        "function": config.name,
        "handler": config.handler,
        "timeout": config.timeout,
        "runtime": config.runtime,
        "environment": config.env_vars.resolve(),
        "event": json.loads(event),
        "hosts": options["extra_hosts"],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    with (
        patch.object(InvokeContext, "_get_container_manager", MagicMock()),
        patch.object(LambdaRuntime, "invoke", invoke),
        # Made for warm containers too, whichever are asked for.
        patch("samcli.lib.utils.file_observer.get_validated_container_client", MagicMock()),
    ):
        cli(sys.argv[1:], prog_name="sam")

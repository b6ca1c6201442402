"""A worker of its own process: consumes one batch of ten, one at a time; one of them hangs until it is killed.

Run as ``python -m kit.batch_worker NOW_MS FILE HANGING``. It appends each effect to the file, writes ``hanging`` to its
output when that one has begun, and prints the answer as JSON, if it lives to. Nothing hangs where the name is ``-``.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from kit.clock import FakeLambdaContext, FrozenClock
from kit.dying_worker import record
from onceq import App, Context, job
from onceq.runtime import Runtime

KEYS = [f"k-{number}" for number in range(1, 11)]


def main(now_ms: int, effects: Path, hanging: str) -> None:
    """Consume the batch."""

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        with effects.open("a") as file:
            file.write(f"{ctx.key} {ctx.idempotency_key_for('charge')}\n")
        if ctx.key == hanging:
            print("hanging", flush=True)
            threading.Event().wait()
        return ctx.key

    app = App([charge], runtime=Runtime(clock=FrozenClock(now_ms)), hooks=[])
    batch = [record(key, kill=False, job_type=charge.name) for key in KEYS]
    print(json.dumps(app.consumer({"Records": batch}, FakeLambdaContext())))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])

"""Where a proof is held: an environment that is open, with the application of what is on trial."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from onceq.application import App
from onceq.settings import require
from onceq.testing.clock import PROOF_MS
from onceq.testing.given import check_app, shown
from onceq.testing.ground import environment
from onceq.testing.world import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceq.job_type import JobType


@contextmanager
def venue(env: Environment | None, job_type: JobType[..., Any] | None, app: App | None) -> Iterator[Environment]:
    """Open an environment, or take the one that is open, at the time of proofs and with queues of its own.

    Args:
        env: The one that is open, if so.
        job_type: The job type on trial; without it another consumer is.
        app: The application; without it that of ``env`` if it has the job type, or one of this job type alone.

    Raises:
        ConfigurationError: If this is no environment or no application, or the application lacks the job type.
    """
    told = "give an environment that is open, `with environment(…) as env:`, or the fixture onceq_env"
    require(env is None or isinstance(env, Environment), f"env= is {shown(env)}: {told}")
    if app is not None:
        check_app(app)
    opened: AbstractContextManager[Environment] = nullcontext(env) if env is not None else environment(app)
    with opened as world:
        chosen = None
        if job_type is not None:
            chosen = app or (world.app_given if job_type in world.app_given.job_types else App([job_type]))
            has = ", ".join(sorted(one.name for one in chosen.job_types)) or "none"
            require(
                job_type in chosen.job_types,
                f"app= lacks the job type on trial, {job_type.name!r}: it has {has}. Give App([…, {job_type.name}])",
            )
        with world.used_by(chosen, at_ms=PROOF_MS):
            if job_type is not None:
                world.check(job_type)
            yield world


def check_group(group: str | None, job_type: JobType[..., Any], world: Environment) -> None:
    """Raise: ConfigurationError, if a message group is given where a queue has none."""
    told = f"group= is for a FIFO queue, and the queue {job_type.queue!r} of {job_type.name!r} is none: leave it out"
    require(group is None or world.settings.queue(job_type.queue).is_fifo, told)

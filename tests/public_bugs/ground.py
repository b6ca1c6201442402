"""What the scenes of the table stand on, and what makes a row of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kit.clock import FakeLambdaContext
from kit.sqs import FakeSqs, SpiedRuntime
from kit.world import event_of, kept
from onceq import Context, JobType

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from kit.world import World
    from onceq import App


BACKENDS = ("moto", "ministack")


@dataclass(frozen=True)
class Ground:
    """A world, on locked moto or on ministack."""

    world: World
    monkeypatch: pytest.MonkeyPatch


def on_both(scene: Callable[[Ground], None]) -> Callable[[Ground], None]:
    """Let a scene play on ministack too, which is atomic by itself, and knows transaction tokens and SQS's limits."""
    scene.backends = BACKENDS  # type: ignore[attr-defined]
    return scene


def backends_of(scene: Callable[[Ground], None]) -> tuple[str, ...]:
    """Return where a scene plays."""
    return getattr(scene, "backends", BACKENDS[:1])


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        name: A short name.
        cites: Where it was met in public, as ``owner/repository#number`` or as an address.
        symptom: What people saw.
        ours: What happens here.
        scenes: The scenes that show it, each of them asserting.
    """

    name: str
    cites: tuple[str, ...]
    symptom: str
    ours: str
    scenes: tuple[Callable[[Ground], None], ...]


class Pay:
    """An app with one job type, ``pay``, over SQS as a list of requests; it counts its starts.

    Attributes:
        runs: The key of every start, in order.
        body: What the job does.
        sqs: What SQS was told.
    """

    def __init__(self, world: World, body: Callable[[Context], Any] | None = None, **options: Any) -> None:
        """Compose it; options are those of the job type, ``sqs`` among them takes another fake."""
        self.world = world
        self.runs: list[str] = []
        self.body = body or (lambda _: None)
        self.sqs: FakeSqs = options.pop("sqs", None) or FakeSqs()
        middleware, settings = options.pop("middleware", ()), options.pop("settings", None)
        if settings is not None:
            world.runtime._given = settings

        def pay(payload: dict[str, Any], ctx: Context) -> Any:
            self.runs.append(ctx.key)
            return self.body(ctx)

        known: dict[str, Any] = {"name": "pay", "max_duration": 20} | options
        self.job_type = JobType(pay, **known)
        runtime = SpiedRuntime(world.runtime, self.sqs)
        self.app: App = world.app(self.job_type, runtime=runtime, middleware=middleware, default=self.job_type)

    def consume(self, *records: dict[str, Any], context: object = None) -> list[str]:
        """Deliver records in one batch; return the ids that were kept."""
        return kept(self.app.consumer(event_of(*records), context or FakeLambdaContext()))

    def deliver(self, *keys: Any, **message: Any) -> list[Any]:
        """Deliver one message for each key in one batch; return the keys that were kept, in order."""
        keys = keys or ("k-1",)
        records = [self.world.message("pay", key=key, **message) for key in keys]
        ids = set(self.consume(*records))
        return [key for key, record in zip(keys, records, strict=True) if record["messageId"] in ids]

    def notes(self) -> list[str]:
        """Return the reasons with which messages were copied to a dead-letter queue."""
        found = [entry["MessageAttributes"]["onceq"]["StringValue"] for entry in self.sqs.entries("send")]
        return [json.loads(text)["reason"] for text in found]


def raising(error: BaseException) -> Callable[[Context], Any]:
    """Return a job's body that raises."""

    def body(_: Context) -> Any:
        raise error

    return body


def returning(make: Callable[[], Any]) -> Callable[[Context], Any]:
    """Return a job's body that returns what is made for it."""

    def body(_: Context) -> Any:
        return make()

    return body

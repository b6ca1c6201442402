"""Short histories of a job, each with what must be true at its end however often a process died on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kit.clock import FakeLambdaContext
from kit.seams import STARTS
from kit.stage import ROUND_SECONDS, Expected, once
from onceq import Context, Entry, Reject, Semantics, Snooze, job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kit.seams import When
    from kit.stage import Scene
    from onceq.job_type import JobType


def charging(scene: Scene, **options: Any) -> JobType[..., Any]:
    """Return a job type that charges and returns the charge."""

    @job("charge", **options)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        return scene.charge(ctx)

    return charge


def new_job(scene: Scene) -> Expected:
    """One job, and its caller asks for the outcome."""
    charge, key = charging(scene), scene.key()
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {"a": 1}, key=key))
    scene.until_quiet()
    scene.insist(lambda app: app.lookup(charge, key))
    return Expected({key: "completed"}, {key})


def many_jobs(scene: Scene) -> Expected:
    """A batch sent at once and delivered at once."""
    charge, keys = charging(scene), [scene.key(name) for name in "abc"]
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue_many([Entry(charge, {"key": key}, key=key) for key in keys]))
    scene.until_quiet()
    return Expected(dict.fromkeys(keys, "completed"), set(keys))


def duplicate(scene: Scene) -> Expected:
    """One job sent twice, delivered one message at a time."""
    charge, key = charging(scene), scene.key()
    scene.serve(charge)
    scene.most = 1
    for _ in range(2):
        scene.insist(lambda app: app.enqueue(charge, {"a": 1}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def retried(scene: Scene) -> Expected:
    """A job whose provider fails once before it charges."""
    failures, key = once(), scene.key()

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if next(failures):
            raise ConnectionError
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def snoozed(scene: Scene) -> Expected:
    """A job with a single attempt that asks once to run later."""
    early, key = once(), scene.key()

    @job("charge", max_attempts=3)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if next(early):
            raise Snooze(30)
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def rejected(scene: Scene) -> Expected:
    """A job that the function rejects, and a duplicate of it."""
    key = scene.key()

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        raise Reject("amount must be positive")

    scene.serve(charge)
    scene.most = 1
    for _ in range(2):
        scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "rejected"}, set())


def used_up(scene: Scene) -> Expected:
    """A job that fails in each of its attempts."""
    key = scene.key()

    @job("charge", max_attempts=2)
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        raise ConnectionError

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "rejected"}, set())


def key_reuse(scene: Scene) -> Expected:
    """A second job under the key of the first, with another payload."""
    charge, key = charging(scene), scene.key()
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {"amount": 1}, key=key))
    scene.until_quiet()
    scene.insist(lambda app: app.enqueue(charge, {"amount": 9_999}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key}, dead=("9999",))


def stale(scene: Scene) -> Expected:
    """A job whose first claimant dies before its effect, beside one that does not."""
    deaths, keys = once(), [scene.key("dies"), scene.key("good")]

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if ctx.key == keys[0] and next(deaths):
            scene.process.kill()
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue_many([Entry(charge, {}, key=key) for key in keys]))
    scene.until_quiet()
    return Expected(dict.fromkeys(keys, "completed"), set(keys))


def killer(scene: Scene) -> Expected:
    """A job that kills its process every time: a taker that finds no attempt left ends it."""
    key = scene.key()

    @job("charge", max_attempts=2)
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        scene.process.kill()

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "rejected"}, set())


def held(scene: Scene) -> Expected:
    """An at-most-once job that fails after it began: it waits for a person."""
    key = scene.key()

    @job("charge", semantics=Semantics.AT_MOST_ONCE)
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        raise ConnectionError

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "uncertain"}, set())


def held_by_a_taker(scene: Scene) -> Expected:
    """An at-most-once job whose claimant dies: the next delivery leaves it to a person."""
    key = scene.key()

    @job("charge", semantics=Semantics.AT_MOST_ONCE)
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        scene.process.kill()

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "uncertain"}, set())


def not_json(scene: Scene) -> Expected:
    """A body that is not JSON."""
    scene.serve(charging(scene))
    scene.world.sqs.send_message(QueueUrl=scene.settings.queue("default").url, MessageBody="<order/>")
    scene.until_quiet()
    return Expected({}, set(), dead=("<order/>",))


def renewed(scene: Scene) -> Expected:
    """A job outside Lambda, whose lease is renewed once while it runs."""
    return running_on(scene, "renew")


def running_on(scene: Scene, last: str, **options: Any) -> Expected:
    """Run a job outside Lambda until that call of its renewal is through."""
    key = scene.key()

    @job("charge", **options)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        # An attempt whose renewal died with its process waits for nothing.
        assert scene.renewed.wait(30)
        return scene.charge(ctx)

    def watch(method: str, when: When) -> None:
        if method in STARTS and when == "after":
            scene.world.clock.advance(1)  # a renewal comes later, so that it moves something
        if (method, when) == (last, "after"):
            scene.renewed.set()

    scene.seams.watch, scene.seams.on_death = watch, scene.renewed.set
    scene.context = None
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def given_back(scene: Scene) -> Expected:
    """A job whose time runs short while it is claimed: it is given back as never started."""
    charge, key, short, context = charging(scene, max_attempts=3), scene.key(), once(), FakeLambdaContext()

    def watch(method: str, when: When) -> None:
        if method == "receive":
            context.remaining_ms = 60_000
        if (method, when) == ("claim", "after") and next(short):
            context.remaining_ms = 0

    scene.seams.watch = watch
    scene.context = context
    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def ordered(scene: Scene) -> Expected:
    """A FIFO group whose head fails once.

    The order is asserted elsewhere: moto 5.2 delivers the rest of a group while its head is invisible.
    """
    failures, keys = once(), [scene.key("1st"), scene.key("2nd")]

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if ctx.key == keys[0] and next(failures):
            raise ConnectionError
        return scene.charge(ctx)

    scene.use_fifo()
    scene.serve(charge)
    for key in keys:
        scene.insist(lambda app, key=key: app.enqueue(charge, {}, key=key, group="g"))  # type: ignore[misc]
    scene.until_quiet()
    return Expected(dict.fromkeys(keys, "completed"), set(keys))


def redriven(scene: Scene) -> Expected:
    """A job that was rejected, and a person redrives our copy of it after the cause is gone."""
    key, url = scene.key(), scene.settings.queue("default").url
    broken = [True]

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if broken:
            raise Reject("the account is closed")
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    broken.clear()
    scene.world.clock.advance(ROUND_SECONDS)
    dlq = scene.settings.queue("default").dlq_url
    copies = scene.world.dead_letters(dlq.rsplit("/", 1)[-1])
    for copy in copies:
        scene.world.sqs.delete_message(QueueUrl=dlq, ReceiptHandle=copy["ReceiptHandle"])
        attributes = copy["MessageAttributes"]
        scene.world.sqs.send_message(QueueUrl=url, MessageBody=copy["Body"], MessageAttributes=attributes)
    assert copies
    scene.until_quiet()
    return Expected({key: "completed"}, {key})


def unknown(scene: Scene) -> Expected:
    """A job type that this release does not serve: the message waits for one that does."""
    scene.serve(charging(scene))
    body = json.dumps({"onceq": 1, "job_type": "of_tomorrow", "idempotency_key": "k", "payload": {}})
    scene.world.sqs.send_message(QueueUrl=scene.settings.queue("default").url, MessageBody=body)
    scene.until_quiet(rounds=4)
    return Expected({}, set(), waiting=1)


def mixed(scene: Scene) -> Expected:
    """A batch of a good job, a rejected one, one that fails once, one that is not JSON, and a duplicate."""
    failures = once()
    good, bad, slow = scene.key("good"), scene.key("bad"), scene.key("slow")

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if ctx.key == bad:
            raise Reject("no")
        if ctx.key == slow and next(failures):
            raise ConnectionError
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(
        lambda app: app.enqueue_many([Entry(charge, {"key": key}, key=key) for key in (good, bad, slow, good)])
    )
    scene.world.sqs.send_message(QueueUrl=scene.settings.queue("default").url, MessageBody="<order/>")
    scene.until_quiet()
    return Expected({good: "completed", bad: "rejected", slow: "completed"}, {good, slow}, dead=("<order/>",))


def scenes_in(names: Mapping[str, Any]) -> dict[str, Callable[[Scene], Expected]]:
    """Return every scene among the names of a module: what takes a scene and nothing else, and returns its end."""
    types = {"scene": "Scene", "return": "Expected"}
    return {name: function for name, function in names.items() if getattr(function, "__annotations__", {}) == types}


SCENES = scenes_in(globals())

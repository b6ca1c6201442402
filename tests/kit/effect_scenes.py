"""Scenes of jobs with several effects: steps, transactions, the outbox, at most once, locks, the sweep, people."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kit.clock import FakeLambdaContext
from kit.scenes import charging, running_on, scenes_in
from kit.stage import ROUND_SECONDS, Expected, once
from onceq import Context, Entry, Retry, Semantics, job
from onceq.errors import ConditionNotMet, ResolveRefused

if TYPE_CHECKING:
    from kit.stage import Scene
    from onceq import App

# Later than what is sent at once with SQS's own delay.
LATER_SECONDS = 100


def two_steps(scene: Scene) -> Expected:
    """A job with two steps that fails once between them: the first one is not run again."""
    failures, key = once(), scene.key()

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> list[str]:
        charged = ctx.step("charge", scene.charge, ctx)
        if next(failures):
            raise ConnectionError
        return [charged, ctx.step("mail", scene.charge, ctx, "mail")]

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, [key, key], recorded_by={"step"})


def at_most_once(scene: Scene) -> Expected:
    """An at-most-once job whose provider does not take the call at first, so that it asks for another attempt."""
    busy, key = once(), scene.key()

    @job("charge", semantics=Semantics.AT_MOST_ONCE)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if next(busy):
            raise Retry(1)
        scene.starts[ctx.key] += 1
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected(once={key: "job"}, charged={key})


def at_most_once_step(scene: Scene) -> Expected:
    """An at-most-once step behind one that is not; its provider does not take the call at first."""
    busy, key = once(), scene.key()

    def call(ctx: Context) -> str:
        if next(busy):
            raise Retry(1)
        scene.starts[ctx.key] += 1
        return scene.charge(ctx)

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        ctx.step("look", dict)
        return ctx.step("call", call, ctx, semantics=Semantics.AT_MOST_ONCE)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected(once={key: "step"}, charged={key})


def last_piece(scene: Scene) -> Expected:
    """Two jobs that take the last piece in their transactions: one completes with it, the other is rejected."""
    keys = [scene.key("1st"), scene.key("2nd")]

    @job("charge")
    def reserve(payload: dict[str, Any], ctx: Context) -> None:
        ctx.transaction.write(scene.taking(), on_conflict="reject")
        ctx.transaction.write(scene.counting(ctx.key))

    scene.use_own_tables()
    scene.stock_up(1)
    scene.serve(reserve)
    for key in keys:
        scene.insist(lambda app, key=key: app.enqueue(reserve, {}, key=key))  # type: ignore[misc]
        scene.until_quiet()
    return Expected({keys[0]: "completed", keys[1]: "rejected"}, counted=keys, left=0)


def sold_out_at_first(scene: Scene) -> Expected:
    """A job whose transaction does not find a piece at first: it is retried, and completes once there is one."""
    empty, key = once(), scene.key()

    @job("charge")
    def reserve(payload: dict[str, Any], ctx: Context) -> None:
        ctx.transaction.write(scene.taking())
        ctx.transaction.write(scene.counting(ctx.key))
        if not next(empty):
            scene.stock_up(1)

    scene.use_own_tables()
    scene.serve(reserve)
    scene.insist(lambda app: app.enqueue(reserve, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, counted=[key], left=0)


def sending(scene: Scene) -> Expected:
    """A job that sends one message to be delivered at once and one for later; both of their jobs run."""
    key, soon, later = (scene.key(name) for name in ("k", "soon", "later"))

    @job("mail")
    def mail(payload: dict[str, Any], ctx: Context) -> str:
        return scene.charge(ctx)

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        ctx.send(mail, {}, key=soon)
        ctx.send(mail, {}, key=later, delay=LATER_SECONDS)
        return scene.charge(ctx)

    scene.use_own_tables()
    scene.types |= {soon: mail, later: mail}
    scene.serve(charge, mail)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected({key: "completed"}, {key, soon, later}, sent={key: [soon, later]})


def order(scene: Scene) -> Expected:
    """A step, a transaction and a message under a key that is derived; the first attempt fails behind all three."""
    failures, key, keys = once(), scene.key(), set[str]()

    @job("mail")
    def mail(payload: dict[str, Any], ctx: Context) -> str:
        return scene.charge(ctx)

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        charged = ctx.step("charge", scene.charge, ctx)
        ctx.transaction.write(scene.taking())
        ctx.transaction.write(scene.counting(ctx.key))
        keys.add(ctx.send(mail, {"charge": charged}))
        if next(failures):
            raise ConnectionError
        return charged

    scene.use_own_tables()
    scene.stock_up(5)
    scene.serve(charge, mail)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    (sent,) = keys
    scene.types[sent] = mail
    # The message's own job records its effect when it completes.
    records = {"step", "complete"}
    sendings = {key: [sent]}
    return Expected({key: "completed"}, [key, sent], counted=[key], left=4, sent=sendings, recorded_by=records)


def queue_that_is_late(scene: Scene) -> Expected:
    """A message to a queue that is gone: its entry waits, with the reason, until the queue is back."""
    key, mailed = scene.key(), scene.key("mailed")
    late = scene.queue("late")
    scene.world.sqs.delete_queue(QueueUrl=late.url)

    @job("mail", queue="late")
    def mail(payload: dict[str, Any], ctx: Context) -> str:
        return scene.charge(ctx)

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        ctx.send(mail, {}, key=mailed)

    scene.use_own_tables()
    scene.types[mailed] = mail
    scene.settings = replace(scene.settings, queues={**scene.settings.queues, "late": late})
    scene.serve(charge, mail)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet(rounds=4)
    (entry,) = scene.entries()
    assert "NonExistentQueue" in entry["error"]["S"]
    scene.queue("late")
    scene.until_quiet()
    scene.until_quiet(queue="late")
    return Expected({key: "completed"}, {mailed}, sent={key: [mailed]})


def one_lock(scene: Scene) -> Expected:
    """Two jobs on one lock: the second one is delivered while the first one runs, and comes back when it may."""
    meanwhile, keys, running = once(), [scene.key("1st"), scene.key("2nd")], set[str]()

    @job("charge", lock="till", max_attempts=2)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        scene.overlaps += running
        running.add(ctx.key)
        try:
            if ctx.key == keys[0] and next(meanwhile):
                scene.poll_beside()
        finally:
            running.remove(ctx.key)
        return scene.charge(ctx)

    scene.most = 1
    scene.use_own_tables()
    scene.serve(charge)
    for key in keys:
        scene.insist(lambda app, key=key: app.enqueue(charge, {}, key=key))  # type: ignore[misc]
    scene.until_quiet()
    return Expected(dict.fromkeys(keys, "completed"), set(keys))


def renewed_with_its_lock(scene: Scene) -> Expected:
    """A job outside Lambda that holds a lock, which is renewed with its lease."""
    scene.use_own_tables()
    return running_on(scene, "extend", lock="till")


def swept(scene: Scene) -> Expected:
    """The sweep comes before the next delivery: a job that killed its process once, and an at-most-once one."""
    deaths, keys = once(), [scene.key(), scene.key("held")]

    @job("charge")
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if next(deaths):
            scene.process.kill()
        return scene.charge(ctx)

    @job("call", semantics=Semantics.AT_MOST_ONCE)
    def call(payload: dict[str, Any], ctx: Context) -> None:
        scene.starts[ctx.key] += 1
        scene.process.kill()

    answers: list[dict[str, Any]] = []
    scene.most = 1
    scene.use_own_tables()
    scene.types[keys[1]] = call
    scene.serve(charge, call)
    scene.insist(lambda app: app.enqueue_many([Entry(charge, {}, key=keys[0]), Entry(call, {}, key=keys[1])]))
    for _ in keys:
        scene.poll()
    scene.world.clock.advance(ROUND_SECONDS)
    scene.insist(lambda app: answers.append(app.recovery(None, FakeLambdaContext())))
    if scene.seams.crash is None:
        # Both records, the place that is kept comes later.
        assert answers == [{"scanned": 2, "failed": 1, "uncertain": 1, "lost": 0, "finished": True}]
    scene.until_quiet()
    assert scene.starts[keys[1]] <= 1
    return Expected({keys[0]: "completed", keys[1]: "uncertain"}, {keys[0]})


def enqueued_with(scene: Scene) -> Expected:
    """Two callers that save an order and queue its payment in one transaction; only the first one tries again."""
    charge, insists, gives_up = charging(scene), scene.key(), scene.key("once")

    def saving(app: App, key: str) -> None:
        # The condition of an order that was saved says that its payment is queued too.
        with suppress(ConditionNotMet):
            app.enqueue_with(app.transaction([scene.counting(key, first=True)]), charge, {}, key=key)

    scene.use_own_tables()
    scene.serve(charge)
    scene.insist(lambda app: saving(app, insists))
    scene.attempt(lambda app: saving(app, gives_up))
    scene.until_quiet()
    saved = [key for key in (insists, gives_up) if scene.count(key)]
    assert saved[0] == insists
    return Expected(
        dict.fromkeys(saved, "completed"),
        saved,
        counted=[insists, gives_up],
        sent={key: [key] for key in (insists, gives_up)},
    )


def resolved_to_retry(scene: Scene) -> Expected:
    """An at-most-once job that failed, of which a person knows that nothing happened: it is sent and run again."""
    key, broken = scene.key(), [True]

    @job("charge", semantics=Semantics.AT_MOST_ONCE)
    def charge(payload: dict[str, Any], ctx: Context) -> str:
        if broken:
            raise ConnectionError
        scene.starts[ctx.key] += 1
        return scene.charge(ctx)

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    broken.clear()
    scene.insist(lambda app: app.resolve(charge, key, "retry", reason="the provider knows of no charge"))
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    return Expected(once={key: "job"}, charged={key}, dead=(key,))


def resolved_as_done(scene: Scene) -> Expected:
    """An at-most-once job that failed, of which a person knows that it happened: its duplicate is replayed."""
    key = scene.key()

    @job("charge", semantics=Semantics.AT_MOST_ONCE)
    def charge(payload: dict[str, Any], ctx: Context) -> None:
        raise ConnectionError

    def decide(app: App) -> None:
        # A person whose program died is told that the job is completed.
        with suppress(ResolveRefused):
            app.resolve(charge, key, "done", result="ch-1")

    scene.serve(charge)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    scene.insist(decide)
    scene.insist(lambda app: app.enqueue(charge, {}, key=key))
    scene.until_quiet()
    record = scene.record(key)
    assert record is not None
    assert record.result == '"ch-1"'
    return Expected({key: "completed"}, dead=(key,))


EFFECT_SCENES = scenes_in(globals())

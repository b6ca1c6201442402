"""One line that proves a job: `prove_effectively_once` runs it in every way in which it may be delivered, and may fail.

The argument of a proof: what a job does outside is counted in an undisturbed run. Then the same job is delivered twice
and at once, dies at every point, loses every response, is overtaken at every point, comes again as another message and
on another day. Each time the outside must have seen the same: as many effects, and one completion with one result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceq.application import App
from onceq.job_type import JobType
from onceq.settings import require
from onceq.testing.clock import A_DAY, PROOF_MS
from onceq.testing.diagnosis import Diagnosis, Finding, Hints, Own, by_memory
from onceq.testing.errors import NeverSettled, NotEffectivelyOnce
from onceq.testing.ground import environment
from onceq.testing.on_trial import ForeignOnTrial, OnTrial
from onceq.testing.recorder import EffectRecorder
from onceq.testing.report import Report, Result
from onceq.testing.scenarios import TWICE, once, scenarios_of, sent_again
from onceq.testing.stamps import Stamps
from onceq.testing.subject import ConsumerSubject, Handler, Parts
from onceq.testing.trial import Run, Scenario, Trial
from onceq.testing.undisturbed import identities, is_after_completion, key_of, told_effects
from onceq.testing.verdict import findings_of

if TYPE_CHECKING:
    from onceq.testing.tried import Tried
    from onceq.testing.world import Environment

Effects = EffectRecorder | Callable[[], int]


def prove_effectively_once(
    job_type: JobType[..., Any],
    payload: Any,
    *,
    effects: Effects | None = None,
    app: App | None = None,
    key: str | int | None = None,
    other: Any = None,
    group: str | None = None,
    stamps: Collection[str] | None = None,
    setup: Callable[[], object] | None = None,
    progress: Callable[[Result], object] = lambda _result: None,
    env: Environment | None = None,
) -> Report:
    """Prove that a job takes effect once, whatever happens to its messages and workers.

    Args:
        job_type: The job type.
        payload: What it gets.
        effects: Counts what it does outside: an `EffectRecorder` in the place of what it calls, or a callable that
            returns how many effects there are by now, for example rows of a table. What it stages (`ctx.send`,
            `ctx.transaction`) is counted in any case.
        app: The application, for its middleware and the job types that the job sends to; without it the one of ``env``,
            or one of this job type alone.
        key: The idempotency key; without it the job type's ``key=`` derives one, or the kit makes one.
        other: The payload of a second job, where the key is derived and the kit cannot find one by itself.
        group: The message group, on a FIFO queue.
        stamps: The fields of the payload that its producer fills anew with each send, for example a trace id: a second
            send has other values there, and is the same job. Without it, where the key is derived, the fields that
            hold a time and are not what makes the key; ``()`` for none.
        setup: Called before each scenario: puts what the job needs into its tables.
        progress: Told each scenario's result as it ends.
        env: Where to run; without it one is opened, on locked moto, with the tables of ``template.yaml``.

    Returns:
        The report; its ``summary()`` is one line.

    Raises:
        NotEffectivelyOnce: If a scenario ended with too many or too few effects, no completion, or another result. It
            shows the shortest timeline that breaks the job.
        ConfigurationError: If the template, the application or what is given cannot be used, or the key is
            derived and the kit cannot make a second job (``other=``).
        EnqueueRefused: If the payload does not fit the job type.

    Example:
        >>> from onceq import Context, job
        >>> gateway = EffectRecorder()
        >>> @job("charge_order", max_duration=5)
        ... def charge_order(payload: dict, ctx: Context) -> dict:
        ...     key = ctx.idempotency_key_for("charge")
        ...     return ctx.step("charge", gateway.charge, payload["cents"], idempotency_key=key)
        >>> report = prove_effectively_once(charge_order, {"cents": 500}, effects=gateway)
        >>> report.effects
        {'charge': 1}
    """
    __tracebackhide__ = True
    _check(job_type, effects)
    with _opened(env, job_type, app) as world:
        world.check(job_type)
        job = OnTrial(job_type, payload, key, other, group, stamps)
        return _Proof(world, job, effects, setup, job_type.name, progress).run()


def prove_consumer(
    make: Callable[[Parts], Handler],
    body: Mapping[str, Any],
    *,
    identity: str = "order_id",
    stamps: Collection[str] | None = None,
    effects: Callable[[], int] | None = None,
    name: str = "",
    env: Environment | None = None,
) -> Report:
    """Prove that a consumer of another make runs a job's effect once: a Lambda handler that you wrote by hand.

    Args:
        make: Gets the `Parts` to work with and returns the handler: ``handler(event, context)``. Its job is
            ``parts.work(body, idempotency_key=…)``, which has the effect and returns the result.
        body: The body of a message, as JSON values.
        identity: The field that says which job it is; a second job has another value there.
        stamps: The fields that its producer fills anew with each send, for example a trace id: a second send of the job
            has other values there, and is the same job. Without it the fields that hold a time; ``()`` for none.
        effects: Counts the effects, where they are not those of ``parts.work``: for example rows of a table.
        name: What the report calls it; without it the function's name.
        env: Where to run; without it one is opened on locked moto.

    Returns:
        The report.

    Raises:
        NotEffectivelyOnce: If a scenario ended with too many or too few effects, or a worker wrote what it did not own.
        ConfigurationError: If the environment, or what is given, cannot be used.

    Example:
        >>> import json
        >>> def by_the_providers_key(parts):
        ...     def handler(event, context):
        ...         for record in event["Records"]:
        ...             order = json.loads(record["body"])
        ...             parts.work(order, idempotency_key=order["order_id"])
        ...     return handler
        >>> report = prove_consumer(by_the_providers_key, {"order_id": "o-1", "sent_at": "2026-11-29T12:00:00Z"})
        >>> report.ok
        True
    """
    __tracebackhide__ = True
    require(
        identity in body, f"the body has no {identity!r}: say with identity= which field tells one job from another"
    )
    recorder, given = EffectRecorder(), dict(body)
    with _opened(env, None, App([])) as world:
        table = world.settings.claims_table
        consumer = ForeignOnTrial(given, identity, table, Stamps.of(given, stamps, identity))

        def work(message: Any, **named: Any) -> Any:
            # What the producer stamps goes to no provider.
            answer = recorder.call("work", consumer.stamps.without(message), **named)
            return next(iter(consumer.result), answer)

        world.use(ConsumerSubject(make, table, work, consumer.job_of))
        named = name or getattr(make, "__name__", "the consumer")
        return _Proof(world, consumer, effects or recorder, None, named).run()


@contextmanager
def _opened(env: Environment | None, job_type: JobType[..., Any] | None, app: App | None) -> Iterator[Environment]:
    opened: AbstractContextManager[Environment] = nullcontext(env) if env is not None else environment(app)
    with opened as world:
        chosen = None
        if job_type is not None:
            chosen = app or (world.app_given if job_type in world.app_given.job_types else App([job_type]))
            require(
                job_type in chosen.job_types,
                f"app= does not have {job_type.name!r} itself: App([that, {job_type.name}])",
            )
        with world.used_by(chosen, at_ms=PROOF_MS):
            yield world


def _check(job_type: object, effects: object) -> None:
    """Raise: ConfigurationError, if these are not what a proof takes."""
    __tracebackhide__ = True
    require(isinstance(job_type, JobType), f"{job_type!r} is no job type: give the function that has @job above it")
    is_count = inspect.ismethod(effects) and isinstance(effects.__self__, EffectRecorder)
    require(not is_count, "effects= takes the recorder itself, not its count: it is cleared before each scenario")
    fits = effects is None or isinstance(effects, EffectRecorder) or callable(effects)
    told = type(effects).__name__
    require(
        fits,
        f"effects= is an EffectRecorder, or a function that returns the number by now, no {told}: put "
        "EffectRecorder(like=…) in the place of what the job calls, and give that",
    )


# ------------------------------------------------------------------------------------------------------------ the proof


@dataclass
class _Proof:
    world: Environment
    tried: Tried
    effects: Effects | None
    setup: Callable[[], object] | None
    name: str
    progress: Callable[[Result], object] = lambda _result: None
    points: Run = field(init=False)
    results: list[Result] = field(default_factory=list)
    played: dict[Scenario, Result] = field(default_factory=dict)

    def run(self) -> Report:
        __tracebackhide__ = True
        first, hints = self._undisturbed()
        self._result(once(), first, hints)
        if self.results[0].ok:
            hints = self._with_others(hints)
            for scenario in self._scenarios():
                self._try(scenario, hints)
        twice = [result.ok for result in self.results if result.group == TWICE]
        if twice and all(twice):
            self._falsy(hints)
        report = Report(self.name, self.results, dict(hints.expected), self._uncounted(first))
        if not report.ok:
            raise NotEffectivelyOnce(report)
        return report

    def _uncounted(self, undisturbed: Run) -> list[str]:
        """Return the job's own writes that no function of the caller's can have counted."""
        if self.effects is not None and not isinstance(self.effects, EffectRecorder):
            return []
        calls = [entry.call for entry in undisturbed.timeline.entries if entry.call is not None and entry.landed]
        own = [f"{call.operation} {call.table}".rstrip() for call in calls if call.own and call.is_write]
        return list(dict.fromkeys(own))

    def _scenarios(self) -> Iterator[Scenario]:
        yield from scenarios_of(
            self.points.points,
            first=self.points.first_points,
            keys_last=self.tried.keys_last,
            most_attempts=self.tried.most_attempts,
            others=self.tried.others,
        )
        yield sent_again(self.tried.sent_again_after, self.tried.stamped)

    def _undisturbed(self) -> tuple[Run, Hints]:
        first = self._play(once())
        self.tried.passes_on({effect.key for effect in first.effects if effect.key is not None and not effect.at})
        expected = {effect.name: first.distinct(effect.name) for effect in first.effects}
        runs = [first]
        varies, forgotten = [], False
        told = identities(first)
        points = first
        for diagnosis, scenario, changed in (
            (Diagnosis.KEY_RANDOM, once(), lambda _world: None),
            (Diagnosis.KEY_FROM_TIME, once(A_DAY), lambda _world: None),
            (Diagnosis.KEY_FROM_MESSAGE_ID, once(), lambda world: world.mailbox.skip()),
            (Diagnosis.KEY_FROM_SEND, once(), lambda world: world.pass_time(A_DAY)),
        ):
            again = self._play(scenario, before=changed)
            runs.append(again)
            # A warm process: what is made once is made by now.
            points = again if diagnosis is Diagnosis.KEY_RANDOM else points
            forgotten = forgotten or len(again.effects) < len(first.effects)
            if identities(again) != told and not forgotten:
                varies.append(diagnosis)
                break
        self.points = points
        return first, Hints(
            expected=expected,
            own={0: Own(key_of(first), expected, told_effects(runs))},
            varies=tuple(varies),
            forgotten=forgotten,
            after_completion=is_after_completion(first),
            claims=any(one.call is not None and one.call.is_write for one in first.timeline.entries),
            remembers=self.tried.remembers(first.items),
        )

    def _with_others(self, hints: Hints) -> Hints:
        """Return what undisturbed runs told, those of the second jobs, too: each alone."""
        own, first = dict(hints.own), hints.own[0]
        for number in range(1, self.tried.others + 1):
            run = self._play(once(other=number))
            foreign = self.tried.texts(0) - self.tried.texts(number)
            told = {
                at: frozenset(value for value in values if value not in foreign)
                for at, values in told_effects([run]).items()
                if at in first.given
            }
            own[number] = Own(key_of(run), {one.name: run.distinct(one.name) for one in run.effects}, told)
        return replace(hints, own=own)

    def _try(self, scenario: Scenario, hints: Hints) -> None:
        self._result(scenario, self._play(scenario, then_again=True), hints)

    def _result(self, scenario: Scenario, run: Run, hints: Hints) -> None:
        found = findings_of(run, hints, starts_once=self.tried.starts_once)
        if not self.results and run.counted == 0:
            found.append(Finding(Diagnosis.NO_EFFECT, "effects= counted nothing in an undisturbed run"))
        elif not any(hints.expected.values()):
            found.append(Finding(Diagnosis.NOTHING_COUNTED, "not one effect in an undisturbed run"))
        if scenario.cold is not None and self.played[scenario.cold].ok:
            found = by_memory(found)
        self.played[scenario] = Result(scenario.group, scenario.name, found, run)
        self._add(self.played[scenario])

    def _add(self, result: Result) -> None:
        self.results.append(result)
        self.progress(result)

    def _falsy(self, hints: Hints) -> None:
        def play(trial: Trial) -> None:
            letter = trial.send()
            trial.deliver(letter)
            trial.redeliver(letter)

        for value in self.tried.results:
            scenario = Scenario("result", f"delivered twice, with the result {value!r}", play)
            with self.tried.returning(value):
                self._try(scenario, replace(hints, falsy=True))

    def _play(
        self,
        scenario: Scenario,
        *,
        before: Callable[[Environment], object] = lambda _world: None,
        then_again: bool = False,
    ) -> Run:
        self.world.reset()
        if self.setup is not None:
            self.setup()
        before(self.world)
        trial = Trial(self.world, self.tried, self.effects, scenario.warm)
        error, settled = None, None
        try:
            scenario.play(trial)
            trial.settle()
            if then_again:
                # Whatever happened: one more delivery changes nothing. What is lost by now it must not bring back.
                settled = trial.done()
                trial.once_more()
        except NeverSettled as never:
            error = never
        return replace(trial.facts(scenario, error), settled=settled)

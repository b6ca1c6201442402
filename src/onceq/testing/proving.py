"""One line that proves a job: `prove_effectively_once` runs it in every way in which it may be delivered, and may fail.

The argument of a proof: what a job does outside is counted in an undisturbed run. Then the same job is delivered twice
and at once, dies at every point, loses every response, is overtaken at every point, comes again as another message and
on another day. Each time the outside must have seen the same: as many effects, and one completion with one result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceq.application import App
from onceq.settings import require
from onceq.testing.clock import A_DAY
from onceq.testing.counting import Counter, Effects, counters_of
from onceq.testing.diagnosis import Diagnosis, Finding, Hints, by_memory
from onceq.testing.errors import EffectFailed, NeverSettled, NotEffectivelyOnce, StandsStill
from onceq.testing.given import check_function, check_job_type, shown
from onceq.testing.on_trial import MOST_FAILURES, ForeignOnTrial, OnTrial
from onceq.testing.recorder import EffectRecorder
from onceq.testing.report import Report, Result
from onceq.testing.scenarios import TWICE, once, scenarios_of, sent_again
from onceq.testing.stamps import Stamps
from onceq.testing.subject import MAKES, ConsumerSubject, Handler, Parts
from onceq.testing.trial import Run, Scenario, Trial
from onceq.testing.two_jobs import two_jobs
from onceq.testing.undisturbed import derived, hints_of, most_of, other_of, swayed
from onceq.testing.venue import check_group, venue
from onceq.testing.verdict import findings_of

if TYPE_CHECKING:
    from onceq.job_type import JobType
    from onceq.testing.tried import Tried
    from onceq.testing.world import Environment


# What an undisturbed run has not come to its end with: what to count in it is no question yet.
UNENDED = (Diagnosis.NOT_COMPLETED, Diagnosis.NEVER_SETTLED)
# Real seconds for which a worker is waited for where another one has waited in vain.
IMPATIENT = 1.0


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
        effects: Counts what it does outside: an `EffectRecorder` in the place of what it calls, a callable that returns
            how many effects there are by now, for example rows of a table, or a list of these. What it stages
            (`ctx.send`, `ctx.transaction`) is counted in any case.
        app: The application, for its middleware and the job types that the job sends to; without it the one of ``env``,
            or one of this job type alone.
        key: The idempotency key; without it the job type's ``key=`` derives one, or the kit makes one.
        other: The payload of a second job, where the key is derived and the kit cannot find one by itself.
        group: The message group, on a FIFO queue; on another one it is refused.
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
    check_job_type(job_type)
    _check(setup=setup, progress=progress)
    counters = counters_of(effects)
    with venue(env, job_type, app) as world:
        check_group(group, job_type, world)
        job = OnTrial(job_type, payload, key, other, group, stamps)
        return _Proof(world, job, counters, setup, job_type.name, progress).run()


def prove_consumer(
    make: Callable[[Parts], Handler],
    body: Mapping[str, Any],
    *,
    identity: str = "order_id",
    stamps: Collection[str] | None = None,
    effects: Effects | None = None,
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
        effects: Counts the effects, where they are not those of ``parts.work``: what `prove_effectively_once` takes.
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
    check_function("make", make, MAKES)
    counters = counters_of(effects)
    require(isinstance(body, Mapping), f"body= is {shown(body)}: give what the JSON of a message's body holds, a dict")
    require(
        identity in body, f"the body has no {identity!r}: say with identity= which field tells one job from another"
    )
    recorder, given = EffectRecorder(fails=EffectFailed), dict(body)
    with venue(env, None, App([])) as world:
        table = world.settings.claims_table
        receives = world.mailbox.place_of(world.settings.queue("default").arn).most_receives or MOST_FAILURES + 1
        # The last receive that the queue allows is one that works.
        failures = max(1, min(MOST_FAILURES, receives - 1))
        consumer = ForeignOnTrial(given, identity, table, Stamps.of(given, stamps, identity), most_attempts=failures)

        def work(message: Any, **named: Any) -> Any:
            # What the producer stamps goes to no provider.
            answer = recorder.call("work", consumer.stamps.without(message), **named)
            return next(iter(consumer.result), answer)

        world.use(ConsumerSubject(make, table, work, consumer.job_of))
        named = name or getattr(make, "__name__", "the consumer")
        return _Proof(world, consumer, counters or counters_of(recorder), None, named).run()


def _check(*, setup: object, progress: object) -> None:
    """Raise: ConfigurationError, if these are not what a proof takes."""
    __tracebackhide__ = True
    if setup is not None:
        check_function("setup", setup, "puts what the job needs into its tables")
    check_function("progress", progress, "is told each scenario's result")


def _uncounted_of(run: Run, hints: Hints) -> list[Finding]:
    """Return what counted nothing in an undisturbed run, or that nothing did."""
    idle = [Finding(Diagnosis.NO_EFFECT, f"{told} counted nothing in an undisturbed run") for told in run.idle]
    if idle or any(hints.expected.values()):
        return idle
    return [Finding(Diagnosis.NOTHING_COUNTED, "not one effect in an undisturbed run")]


# ------------------------------------------------------------------------------------------------------------ the proof


@dataclass
class _Proof:
    world: Environment
    tried: Tried
    counters: Sequence[Counter]
    setup: Callable[[], object] | None
    name: str
    progress: Callable[[Result], object] = lambda _result: None
    points: Run = field(init=False)
    patience: float = field(init=False)
    results: list[Result] = field(default_factory=list)
    played: dict[Scenario, Result] = field(default_factory=dict)

    def run(self) -> Report:
        __tracebackhide__ = True
        self.patience = self.world.patience
        try:
            report = self._run()
        finally:
            self.world.patience = self.patience
        if not report.ok:
            raise NotEffectivelyOnce(report)
        return report

    def _run(self) -> Report:
        first, hints = self._undisturbed()
        self._result(once(), first, hints)
        if self.results[0].ok:
            hints = self._with_others(hints)
            for scenario in self._scenarios():
                self._try(scenario, hints)
        twice = [result.ok for result in self.results if result.group == TWICE]
        if twice and all(twice):
            self._falsy(hints)
        by_default = any(counter.fails_by_default for counter in self.counters)
        return Report(self.name, self.results, dict(hints.expected), self._uncounted(first), by_default)

    def _uncounted(self, undisturbed: Run) -> list[str]:
        """Return the job's own writes, which a recorder does not count; a function beside it may, or may not."""
        if self.counters and all(counter.sees_all for counter in self.counters):
            return []
        calls = [entry.call for entry in undisturbed.timeline.entries if entry.call is not None and entry.landed]
        claims = self.world.settings.claims_table
        own = [call for call in calls if call.own and call.is_write and not call.keeps_to(claims)]
        return list(dict.fromkeys(f"{call.operation} {call.table}".rstrip() for call in own))

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
        runs = {
            diagnosis: self._play(scenario, before=changed)
            for diagnosis, scenario, changed in (
                (Diagnosis.KEY_RANDOM, once(), lambda _world: None),
                (Diagnosis.KEY_FROM_TIME, once(A_DAY), lambda _world: None),
                (Diagnosis.KEY_FROM_MESSAGE_ID, once(), lambda world: world.mailbox.skip()),
                (Diagnosis.KEY_FROM_SEND, once(), lambda world: world.pass_time(A_DAY)),
            )
        }
        # A warm process: what is made once is made by now.
        self.points = runs[Diagnosis.KEY_RANDOM]
        return first, hints_of(first, runs, remembers=self.tried.remembers(first.items))

    def _with_others(self, hints: Hints) -> Hints:
        """Return what undisturbed runs told, those of the second jobs, too: each alone, and after the first one."""
        own, written, together = dict(hints.own), frozenset[str](), dict[int, Mapping[str, int]]()
        for number in range(1, self.tried.others + 1):
            run = self._play(once(other=number))
            own[number] = other_of(run, hints.own[0], self.tried.texts(0), self.tried.texts(number))
            later = self._play(once(other=number), before=_another_message)
            after = self._play(two_jobs(number))
            written |= derived(run, later, after)
            names = swayed(hints.own[0], run, after)
            runs = [after, self._play(two_jobs(number, turned=True))] if names else []
            together[number] = most_of(names, runs)
        return replace(hints, own=own, derived=written, swayed=together)

    def _try(self, scenario: Scenario, hints: Hints) -> None:
        run = self._play(scenario, then_again=True)
        if isinstance(run.error, StandsStill) and not run.blocked and self.world.patience < self.patience:
            # Nobody else was under way: it may be slow, and was not waited for for long.
            hasty, self.world.patience = self.world.patience, self.patience
            run = self._play(scenario, then_again=True)
            self.world.patience = hasty
        self._result(scenario, run, hints)

    def _result(self, scenario: Scenario, run: Run, hints: Hints) -> None:
        found = findings_of(run, hints, starts_once=self.tried.starts_once)
        if not self.results and not any(one.diagnosis in UNENDED for one in found):
            found += _uncounted_of(run, hints)
        if scenario.cold is not None and self.played[scenario.cold].ok:
            found = by_memory(found)
        if run.blocked:
            # It is known by now: another scenario with two workers is not to take as long.
            self.world.patience = min(self.world.patience, IMPATIENT)
        self.played[scenario] = Result(scenario.group, scenario.name, found, run, played=not run.blocked)
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
        trial = Trial(self.world, self.tried, self.counters, scenario.warm)
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


def _another_message(world: Environment) -> None:
    """Let the next message have another id, on another day."""
    world.mailbox.skip()
    world.pass_time(A_DAY)

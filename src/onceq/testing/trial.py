"""One run of a job under trial: what is sent, what goes wrong, and the facts that are left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.testing.contents import tables
from onceq.testing.done import distinct
from onceq.testing.errors import StandsStill
from onceq.testing.outcome import Outcome
from onceq.testing.points import Move, Point
from onceq.testing.process import REFUSED
from onceq.testing.timeline import RECEIVES, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onceq.record import Record
    from onceq.testing.calls import Call
    from onceq.testing.counting import Counter
    from onceq.testing.done import Done
    from onceq.testing.errors import NeverSettled
    from onceq.testing.mailbox import Letter
    from onceq.testing.memory import Effect
    from onceq.testing.process import Worker
    from onceq.testing.subject import Seen, Start
    from onceq.testing.timeline import Timeline
    from onceq.testing.tried import Tried
    from onceq.testing.world import Environment


@dataclass
class Run:
    """The facts of one run.

    Args:
        name: The scenario.
        jobs: How many jobs there were.
        numbers: Which ones: 0 is the one on trial.
        idle: Which of what counts (``effects=``) counted nothing.
        troubled: Whether something died, was lost or was overtaken.
        hopeless: Whether the effect failed at each attempt.
        late: Whether an attempt came later than the services remember keys.
        timeline: What happened.
        points: Where something could have gone wrong, in order.
        first_points: How many of them the first delivery came by.
        effects: What happened outside.
        records: The records of the claims table.
        left: Messages that are still in the queue.
        dead: Messages in the dead-letter queue.
        stranded: Those of them for which nothing that was made to go wrong accounts.
        given_up: For how many jobs their messages' receives were used up by what was made to go wrong.
        seen: Starts, ends and events.
        items: What stands in the consumer's own table at the end.
        made_up: The first call of each function whose answer the recorder made up.
        tables: Names of the tables that there are at the end.
        answers: All the texts that recorders made up.
        repeated: Whether a provider was called again with a key that it knew.
        differing: Names of the effects that came with one key and other arguments.
        in_vain: Names of the effects that one start called twice under one key.
        framework: The tables that are the framework's own.
        strayed: Whether the run did not come by a point where something was to go wrong.
        alive_ms: How long an invocation may take.
        warm: Whether one process took what came, as long as it lived.
        error: Why it did not settle, if so.
        blocked: Whether a worker waited for one that the scenario let stand still: that is shown of nobody's job.
        settled: The effects that there were before the one delivery more; ``None`` without one.
    """

    name: str
    jobs: int
    troubled: bool
    late: bool
    timeline: Timeline
    points: list[Point]
    first_points: int
    effects: list[Done]
    records: list[Record]
    left: list[Letter]
    dead: list[Letter]
    seen: Seen
    numbers: tuple[int, ...] = (0,)
    idle: tuple[str, ...] = ()
    hopeless: bool = False
    stranded: list[Letter] = field(default_factory=list)
    given_up: int = 0
    items: list[str] = field(default_factory=list)
    made_up: Mapping[str, Effect] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()
    answers: frozenset[str] = frozenset()
    repeated: bool = False
    differing: tuple[str, ...] = ()
    in_vain: tuple[str, ...] = ()
    framework: frozenset[str] = frozenset()
    strayed: bool = False
    alive_ms: float = 0
    warm: bool = False
    error: NeverSettled | None = None
    blocked: bool = False
    settled: Sequence[Done] | None = None

    def distinct(self, name: str, job: str | None = None) -> int:
        """Return how many effects of a name happened, of a job or of all; those with one key are counted once."""
        return distinct(self.effects, name, job)

    def start_of(self, effect: Done) -> Start | None:
        """Return the start that an effect belongs to; ``None`` if it is not known."""
        return self.seen.start_of(effect.worker, effect.job, effect.at)

    @property
    def only_reads_failed(self) -> bool:
        """Whether something was made to go wrong, and nothing but requests that only look something up."""
        calls = [point.call for point in self.points if point.call is not None]
        reads = {f"{REFUSED}{call}" for call in calls if not call.is_write}
        faults = {one.what for one in self.timeline.entries if one.kind in (Kind.FAULT, Kind.DEATH)}
        return bool(faults) and faults <= reads

    def kept(self, name: str, job: str | None = None) -> int:
        """Return how many there were when nothing was left to be delivered."""
        return distinct(self.effects if self.settled is None else self.settled, name, job)


@dataclass
class Trial:
    """One run, while it goes on.

    Args:
        environment: The world, as good as new.
        tried: What is on trial.
        counters: Who counts what happened outside.
        warm: Whether one process takes what comes, as long as it lives.
        points: Where something could go wrong, in the order in which the workers came there.
        moves: What goes wrong, by the number of the point, from 0.
        planned: What stood at those points in the undisturbed run.
        made: Where it went wrong.
        home: ARN of the queue that the message was sent to.
        first: What was sent first.
        first_points: How many points the first delivery came by.
    """

    environment: Environment
    tried: Tried
    counters: Sequence[Counter]
    warm: bool = False
    points: list[Point] = field(default_factory=list)
    moves: dict[int, Move] = field(default_factory=dict)
    planned: dict[int, str] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    home: str = ""
    first: Letter | None = None
    first_points: int = 0

    def __post_init__(self) -> None:
        """Count from here on."""
        self._numbers: set[int] = set()
        self._refused: Call | None = None
        self._refused_at = 0
        # Recorders before functions, which may look at them.
        for counter in sorted(self.counters, key=lambda counter: counter.sees_all):
            counter.begin()

    def send(self, *, other: int = 0) -> Letter:
        """Put the message into its queue."""
        letter = self.tried.send(self.environment, other=other)
        self._numbers.add(other)
        self.home = letter.place.arn
        self.first = self.first or letter
        return letter

    def direct(self, point: Point) -> Move:
        """Make the move that is planned for this point, by its number among all, or let it pass.

        A request that fails does so for the rest of its delivery: else whoever asks again hides it from the job.
        """
        number = len(self.points)
        self.points.append(point)
        if number in self.moves and point.shape == self.planned.get(number, point.shape):
            self.made.add(number)
        move = self.moves.get(number, Move.PASS)
        if move is Move.FAIL and point.may_fail and point.call is not None:
            self._refused, self._refused_at = point.call, len(self.environment.timeline.entries)
        elif point.call is not None and point.call == self._refused and not self._came_since(self._refused_at):
            return Move.FAIL
        # A run that strayed may stand elsewhere, where nothing can fail: that it strayed is what is said then.
        return move if point.admits(move) else Move.PASS

    def _came_since(self, entry: int) -> bool:
        """Return whether anything was delivered behind an entry of the timeline."""
        since = self.environment.timeline.entries[entry:]
        return any(one.kind is Kind.DELIVERY and one.what.startswith(RECEIVES) for one in since)

    def plan(self, number: int, point: Point, move: Move) -> dict[int, Move]:
        """Return moves that let this go wrong at that point, which the run has to come by again."""
        self.planned[number] = point.shape
        return {number: move}

    @property
    def unmade(self) -> set[int]:
        """The numbers of the points where something is to go wrong and has not."""
        return {*self.planned} - self.made

    def deliver(self, *letters: Letter, moves: dict[int, Move] | None = None) -> None:
        """Deliver messages, in one batch; what goes wrong goes wrong at these points."""
        self.moves = moves or self.moves
        self.environment.deliver(letters, director=self.direct, warm=self.warm)
        self.first_points = self.first_points or len(self.points)

    def stand(self, letter: Letter, number: int) -> Worker:
        """Deliver a message to a worker, and let it stand before its point of this number."""
        worker, _ = self.environment.start(letter)
        for _ in range(number):
            worker.go()
        return worker

    def drain_until_made(self) -> None:
        """Deliver until all has gone wrong that is planned, or nothing is left."""
        self.environment.drain(only=lambda one: bool(self.unmade) and self.tried.is_mine(one), director=self.direct)

    def redeliver(self, letter: Letter) -> None:
        """Deliver a message again, acknowledged or not."""
        self.environment.redeliver(letter, director=self.direct, warm=self.warm)

    def once_more(self) -> None:
        """Deliver what was sent first once more, under another message id, to a fresh process."""
        self.warm = False
        if self.first is not None:
            self.deliver(self.environment.mailbox.duplicate(self.first))
            self.settle()

    def settle(self) -> None:
        """Deliver until nothing of the job is left in its queue."""
        self.environment.drain(only=self.tried.is_mine, director=self.direct, warm=self.warm)

    def done(self) -> list[Done]:
        """Return the effects that there are by now."""
        calls = [call for counter in self.counters for call in counter.calls()]
        return Outcome(self.environment, self.tried, calls).effects()

    def facts(self, scenario: Scenario, error: NeverSettled | None) -> Run:
        """Return what is to be said of the run of a scenario."""
        environment = self.environment
        environment.mailbox.collect()
        letters, timeline = environment.mailbox.letters, environment.timeline
        dead = environment.dead_letters()
        used_up = [letter for letter in dead if environment.mailbox.is_used_up(letter)]
        counted = {counter.told: counter.calls() for counter in self.counters}
        calls = [call for each in counted.values() for call in each]
        outcome = Outcome(environment, self.tried, calls)
        return Run(
            name=scenario.name,
            jobs=scenario.jobs,
            troubled=scenario.troubled,
            # Whatever went wrong, one attempt is all that there was.
            hopeless=scenario.hopeless or (scenario.troubled and self.tried.most_attempts == 1),
            late=self.tried.keys_last is not None and timeline.elapsed > self.tried.keys_last,
            timeline=environment.timeline,
            points=self.points,
            first_points=self.first_points,
            effects=outcome.effects(),
            numbers=tuple(sorted(self._numbers)),
            idle=tuple(told for told, each in counted.items() if not any(call.happened for call in each)),
            records=self.tried.records(environment),
            left=[letter for letter in letters if letter not in dead and self.tried.is_mine(letter)],
            dead=dead,
            stranded=[letter for letter in dead if letter not in used_up and self._is_stranded(letter)],
            given_up=len({letter.body for letter in used_up if self.tried.is_mine(letter)}),
            seen=environment.seen,
            items=self.tried.items(environment),
            alive_ms=environment.mailbox.timeout_of(self.home) * 1000,
            made_up={one.name: one for one in reversed(calls) if one.made_up is not None},
            tables=frozenset(tables()),
            answers=frozenset(text for one in calls for text in (one.made_up or {}).values()),
            repeated=any(one.repeated for one in calls),
            differing=tuple(outcome.differing()),
            in_vain=tuple(outcome.in_vain()),
            framework=outcome.framework,
            strayed=bool(self.unmade),
            warm=scenario.warm,
            error=error,
            blocked=isinstance(error, StandsStill) and len(timeline.under_way) > 1,
        )

    def _is_stranded(self, letter: Letter) -> bool:
        return self.tried.is_mine(letter) and not self.tried.may_be_dead(letter)


@dataclass(frozen=True)
class Scenario:
    """One way in which a message may be delivered.

    Args:
        group: What it is about, for example ``crash``.
        name: What happens.
        play: Does it; what is left in the queue afterwards is delivered until nothing is.
        jobs: How many jobs there are.
        troubled: Whether something dies, is lost or is overtaken.
        warm: Whether one process takes what comes, as long as it lives; without it a fresh one each time.
        cold: The scenario that does the same to fresh processes, if there is one.
        hopeless: Whether the effect fails at each attempt, so that the job has to be given up.
    """

    group: str
    name: str
    play: Callable[[Trial], None]
    jobs: int = 1
    troubled: bool = False
    warm: bool = False
    cold: Scenario | None = None
    hopeless: bool = False

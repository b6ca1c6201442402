"""One run of a job under trial: what is sent, what goes wrong, and the facts that are left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceq.errors import EnvelopeError
from onceq.message import Envelope, open_envelope
from onceq.settings import require
from onceq.steps import open_steps
from onceq.testing.done import Done, distinct, leaves
from onceq.testing.points import Move, Point
from onceq.testing.recorder import EffectRecorder, plain
from onceq.testing.timeline import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onceq.record import Record
    from onceq.testing.errors import NeverSettled
    from onceq.testing.mailbox import Letter
    from onceq.testing.subject import Seen
    from onceq.testing.timeline import Timeline
    from onceq.testing.tried import Tried
    from onceq.testing.world import Environment

COUNTED = "effects"
TRANSACTION = "the transaction"


@dataclass
class Run:
    """The facts of one run.

    Args:
        name: The scenario.
        jobs: How many jobs there were.
        numbers: Which ones: 0 is the one on trial.
        counted: How many effects ``effects=`` counted; ``None`` without it.
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
        repeated: Whether a provider was called again with a key that it knew.
        differing: Names of the effects that were called with one key and other arguments.
        strayed: Whether the run did not come by a point where something was to go wrong.
        alive_ms: How long an invocation may take.
        warm: Whether one process took what came, as long as it lived.
        error: Why it did not settle, if so.
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
    counted: int | None = None
    hopeless: bool = False
    stranded: list[Letter] = field(default_factory=list)
    given_up: int = 0
    items: list[str] = field(default_factory=list)
    repeated: bool = False
    differing: tuple[str, ...] = ()
    strayed: bool = False
    alive_ms: float = 0
    warm: bool = False
    error: NeverSettled | None = None
    settled: Sequence[Done] | None = None

    def distinct(self, name: str, job: str | None = None) -> int:
        """Return how many effects of a name happened, of a job or of all; those with one key are counted once."""
        return distinct(self.effects, name, job)

    def kept(self, name: str, job: str | None = None) -> int:
        """Return how many there were when nothing was left to be delivered."""
        return distinct(self.effects if self.settled is None else self.settled, name, job)


@dataclass
class Trial:
    """One run, while it goes on.

    Args:
        environment: The world, as good as new.
        tried: What is on trial.
        effects: Who counts what happened outside.
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
    effects: EffectRecorder | Callable[[], int] | None
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
        self._before = 0
        self._numbers: set[int] = set()
        if isinstance(self.effects, EffectRecorder):
            self.effects.clear()
        elif self.effects is not None:
            self._before = _number(self.effects)

    def send(self, *, other: int = 0) -> Letter:
        """Put the message into its queue."""
        letter = self.tried.send(self.environment, other=other)
        self._numbers.add(other)
        self.home = letter.place.arn
        self.first = self.first or letter
        return letter

    def direct(self, point: Point) -> Move:
        """Make the move that is planned for this point, by its number among all, or let it pass."""
        number = len(self.points)
        self.points.append(point)
        if number in self.moves and point.shape == self.planned.get(number, point.shape):
            self.made.add(number)
        move = self.moves.get(number, Move.PASS)
        # A run that strayed may stand elsewhere, where nothing can fail: that it strayed is what is said then.
        return move if point.admits(move) else Move.PASS

    def plan(self, number: int, point: Point, move: Move) -> dict[int, Move]:
        """Return moves that let this go wrong at that point, which the run has to come by again."""
        self.planned[number] = point.shape
        return {number: move}

    @property
    def strayed(self) -> bool:
        """Whether the run did not come by a point where something was to go wrong."""
        return {*self.planned} - self.made != set()

    def deliver(self, *letters: Letter, moves: dict[int, Move] | None = None) -> None:
        """Deliver messages, in one batch; what goes wrong goes wrong at these points."""
        self.moves = moves or self.moves
        self.environment.deliver(letters, director=self.direct, warm=self.warm)
        self.first_points = self.first_points or len(self.points)

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
        return [*self._recorded(), *self._sent(), *self._committed()]

    def facts(self, scenario: Scenario, error: NeverSettled | None) -> Run:
        """Return what is to be said of the run of a scenario."""
        environment = self.environment
        environment.mailbox.collect()
        letters, timeline = environment.mailbox.letters, environment.timeline
        dead = environment.dead_letters()
        used_up = [letter for letter in dead if environment.mailbox.is_used_up(letter)]
        calls = self.effects.calls if isinstance(self.effects, EffectRecorder) else []
        recorded = self._recorded()
        return Run(
            name=scenario.name,
            jobs=scenario.jobs,
            troubled=scenario.troubled,
            hopeless=scenario.hopeless,
            late=self.tried.keys_last is not None and timeline.elapsed > self.tried.keys_last,
            timeline=environment.timeline,
            points=self.points,
            first_points=self.first_points,
            effects=[*recorded, *self._sent(), *self._committed()],
            numbers=tuple(sorted(self._numbers)),
            counted=None if self.effects is None else len(recorded),
            records=self.tried.records(environment),
            left=[letter for letter in letters if letter not in dead and self.tried.is_mine(letter)],
            dead=dead,
            stranded=[letter for letter in dead if letter not in used_up and self._is_stranded(letter)],
            given_up=len({letter.body for letter in used_up if self.tried.is_mine(letter)}),
            seen=environment.seen,
            items=self.tried.items(environment),
            alive_ms=environment.mailbox.timeout_of(self.home) * 1000,
            repeated=any(one.repeated for one in calls),
            differing=tuple(dict.fromkeys(one.name for one in calls if one.differs)),
            strayed=self.strayed,
            warm=scenario.warm,
            error=error,
        )

    def _is_stranded(self, letter: Letter) -> bool:
        return self.tried.is_mine(letter) and not self.tried.may_be_dead(letter)

    def _recorded(self) -> list[Done]:
        if isinstance(self.effects, EffectRecorder):
            return [
                Done(
                    one.name,
                    one.key,
                    one.worker,
                    one.at,
                    self._is_once(one.worker, one.at),
                    one.in_step,
                    one.job,
                    dict(leaves(plain({"": one.arguments, **one.named}))),
                )
                for one in self.effects.effects
            ]
        if self.effects is None:
            return []
        return [Done(COUNTED, once=self.tried.starts_once)] * (_number(self.effects) - self._before)

    def _is_once(self, worker: str, at: int) -> bool:
        """Return whether a worker was inside what may start at most once, by what it last wrote of its steps."""
        steps = [
            entry.call.steps
            for entry in self.environment.timeline.entries[:at]
            if entry.worker == worker and entry.call is not None and entry.landed and entry.call.steps is not None
        ]
        return self.tried.starts_once or bool(steps and open_steps(steps[-1]))

    def _sent(self) -> list[Done]:
        """Return the messages to other jobs that were sent: an onceq consumer applies one key once."""
        mailbox = self.environment.mailbox
        found = []
        for letter in [*mailbox.letters, *mailbox.deleted]:
            envelope = _envelope(letter)
            if (
                envelope is not None
                and not self.tried.is_mine(letter)
                and letter not in self.environment.dead_letters()
            ):
                found.append(Done(f"the message to {envelope.job_type}", str(envelope.idempotency_key)))
        return found

    def _committed(self) -> list[Done]:
        """Return the commits of writes of the job's own."""
        outbox = self.environment.settings.outbox_table
        return [
            Done(TRANSACTION, None, entry.worker, entry.number)
            for entry in self.environment.timeline.entries
            if entry.kind is Kind.CALL and entry.landed and entry.call is not None and entry.call.update is not None
            if any(write.get("TableName") != outbox for write in entry.call.others)
        ]


def _number(count: Callable[[], int]) -> int:
    number = count()
    told = "it is an EffectRecorder, or a function that returns how many effects there are by now, a whole number"
    require(isinstance(number, int), f"effects= returned {number!r}: {told}")
    return number


def _envelope(letter: Letter) -> Envelope | None:
    try:
        opened = open_envelope(letter.body)
    except EnvelopeError:
        return None
    return opened if isinstance(opened, Envelope) else None


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

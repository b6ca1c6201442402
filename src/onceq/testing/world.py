"""A world to run jobs in: locked moto with the template's resources, a frozen clock, queues on that clock."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from onceq.application import App
from onceq.client import make_client
from onceq.codec import encode
from onceq.errors import ConfigurationError
from onceq.outbox import Delivery as OutboxStatus
from onceq.record import Record, pk_of
from onceq.testing.clock import START_MS, CountingTokens, WorldClock
from onceq.testing.contents import Contents, Place, entries_of, items_of, records_of, tables
from onceq.testing.errors import NeverSettled
from onceq.testing.events import attributes_of
from onceq.testing.given import check_app, check_function, check_job_type, check_known
from onceq.testing.invoking import Delivered, Invoker
from onceq.testing.mailbox import Letter, Mailbox
from onceq.testing.points import Director, check_director, pass_all
from onceq.testing.process import PATIENCE, Process, Sender, Worker
from onceq.testing.subject import AppSubject, Seen, Subject, app_on, check_served
from onceq.testing.timeline import WORLD, Kind, Timeline
from onceq.testing.wording import lasting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from onceq.job_type import JobType
    from onceq.outbox import OutboxEntry
    from onceq.settings import Settings

# Rounds of deliveries after which a run is said to go round in circles; a job may have 90 attempts.
MOST_ROUNDS = 250
BATCH = 10


class Environment:
    """Where jobs are run by hand; `environment` opens one, and the pytest fixture ``onceq_env`` is one.

    Attributes:
        clock: The time, which stands still.
        settings: What the template gives the consumer, with the queues of all functions.
        timeline: What happened so far.
        mailbox: What lies in the queues.
        seen: The starts, ends and telemetry events of the jobs.
        variables: The environment of the consumer function, and what was given beside it.

    The kit's own, which may change: ``app_given``, ``check``, ``close``, ``patience``, ``process``, ``used_by``.
    """

    patience = PATIENCE  # real seconds for which a worker is waited for

    def __init__(
        self,
        settings: Settings,
        places: list[Place],
        *,
        app: App | None,
        machine: Callable[[float], object],
        variables: Mapping[str, str],
        switches: Sequence[str] = (),
    ) -> None:
        """Take what `environment` has opened.

        Args:
            settings: The settings.
            places: The queues.
            app: The application.
            machine: Moves this machine's clock to a time, epoch seconds.
            variables: The environment variables.
            switches: Parameters of the template on which queues depend that are not there.
        """
        if app is not None:
            check_app(app)
        self._switches = tuple(switches)
        self.settings = settings
        self.variables = dict(variables)
        self._app = app
        self._machine, self._starts_at = machine, START_MS
        self._places = places
        services = ("dynamodb", "sqs", "s3") if settings.payload_bucket else ("dynamodb", "sqs")
        self._clients = {name: make_client(name, 10) for name in services}
        self._subject: Subject | None = None
        self._processes: list[Process] = []
        self._saved = Contents()
        self._begin()

    def _begin(self) -> None:
        self.clock = WorldClock(self._machine, self._starts_at)
        self.timeline = Timeline(self.clock)
        self.mailbox = Mailbox(self.clock, self._places)
        self.seen = Seen()
        self._workers = 0
        self._warm: Process | None = None
        self._invoker = Invoker(self.mailbox, self.timeline, self.seen)
        # One for the whole run, so that its tokens, which a FIFO queue knows messages by, come once.
        self._sender = self._process("sender", Timeline(self.clock), make=Sender)

    def reset(self) -> None:
        """Start again: tables as when `keep` was last called, or at the beginning; queues empty; the clock back."""
        self.close()
        self.mailbox.collect()
        self._saved.restore()
        self._begin()

    def keep(self) -> None:
        """Let what stands in the tables now be there after every `reset`."""
        self._saved = Contents()

    def close(self) -> None:
        """Let nothing of any process happen any more."""
        for process in self._processes:
            process.close()
        self._processes.clear()

    # ------------------------------------------------------------------------------------------------ what is run

    @property
    def app(self) -> App:
        """The application, on this clock and these queues. Raises: ConfigurationError, if none was given."""
        if self._app is None:
            message = "this environment has no App: environment(app=App([...])), or the option onceq_app of pytest"
            raise ConfigurationError(message)
        return app_on(self._sender, self._app)

    @property
    def app_given(self) -> App:
        """The application as it was given, on the clients of its own; one without job types if none was."""
        return self._app or App([])

    @contextmanager
    def used_by(self, subject: App | Subject | None, *, at_ms: int = START_MS) -> Iterator[None]:
        """Deliver to something else inside the block, at another time, on what stands in the tables now.

        Afterwards all is as before, but that the queues are empty.
        """
        before = self._app, self._subject, self._saved, self._starts_at
        try:
            self._starts_at = at_ms
            if subject is not None:
                self.use(subject)
            self.keep()
            yield
        finally:
            self._app, self._subject, _, self._starts_at = before
            self.reset()
            self._saved = before[2]

    def use(self, subject: App | Subject) -> Self:
        """Deliver to this application, or to another consumer, from now on.

        Args:
            subject: The application, or what makes the handler of another consumer.

        Returns:
            This environment.

        Raises:
            ConfigurationError: If this is neither.
        """
        if not isinstance(subject, Subject):
            check_app(subject)
            subject = AppSubject(subject)
        self._subject = subject
        if isinstance(self._subject, AppSubject):
            self._app = self._subject.app
        return self

    def process(self, name: str | None = None, *, director: Director = pass_all) -> Process:
        """Start a process: an execution environment of its own."""
        if name is None:
            self._workers += 1
            name = f"w{self._workers}"
        return self._process(name, self.timeline, director=director)

    def _delivered_to(self) -> Subject:
        return self._subject or AppSubject(self.app)

    def _process(
        self, name: str, timeline: Timeline, *, director: Director = pass_all, make: type[Process] = Process
    ) -> Process:
        tokens = CountingTokens(self.clock, f"{name}-t")
        parts: dict[str, Any] = {"clock": self.clock, "tokens": tokens, "clients": self._clients}
        process = make(name, self.settings, timeline=timeline, director=director, **parts)
        self._processes.append(process)
        return process

    # ------------------------------------------------------------------------------------------------- deliveries

    def enqueue(self, job_type: JobType[..., Any] | str, payload: Any, **options: Any) -> Letter:
        """Send one job as `onceq.App.enqueue` does.

        Args:
            job_type: The job type, or its name.
            payload: What it gets.
            options: Those of `onceq.App.enqueue`, for example ``key=``.

        Returns:
            The message as it lies in its queue.

        Raises:
            ConfigurationError: If the application does not have the job type, or the template not its queue.
            OnceqError: As `onceq.App.enqueue`.
        """
        check_job_type(job_type, named=True)
        self.check(self.app.job_types.named(job_type) if isinstance(job_type, str) else job_type)
        self.mailbox.collect()
        self.app.enqueue(job_type, payload, **options)
        [letter] = self.mailbox.collect()
        return letter

    def check(self, job_type: JobType[..., Any]) -> None:
        """Raise: ConfigurationError, if a job type cannot be run here; it says what to do."""
        check_served(job_type, self.app, self.settings, self._switches)

    def put(
        self,
        body: Any,
        *,
        queue: str = "default",
        attributes: Mapping[str, str | bytes | Mapping[str, Any]] | None = None,
        group: str = "",
    ) -> Letter:
        """Let a message lie in a queue that no onceq producer made.

        Args:
            body: The body: text as it is, everything else as JSON.
            queue: The queue's name in ``ONCEQ_QUEUES``, its own name, its ARN or its URL.
            attributes: Message attributes, as for `sqs_record`.
            group: The message group.
        """
        text = body if isinstance(body, str) else encode(body)
        place, given = self.mailbox.place_of(queue), attributes_of(attributes)
        return self.mailbox.put(place, text, attributes=given, group=group)

    def deliver(
        self,
        what: Letter | Iterable[Letter] | Mapping[str, Any],
        *,
        director: Director = pass_all,
        warm: bool = False,
    ) -> Delivered:
        """Invoke the consumer once, and delete what it acknowledges.

        Args:
            what: A message of the mailbox, or several of one queue; or an event, for example from `sqs_event`.
            director: What goes wrong in the process; nothing, if not given.
            warm: Whether to invoke the process of the last delivery again, with what it keeps in memory, if it lives;
                otherwise, and without it, a fresh one.

        Returns:
            What it answered.

        Raises:
            ConfigurationError: If this cannot be delivered, or the director answers with something else than a `Move`.
        """
        __tracebackhide__ = True
        check_director(director)
        subject, received = self._delivered_to(), self._invoker.receive(what)
        process = self._warm if warm and self._warm is not None and not self._warm.dead else self.process()
        play, delivered = self._invoker.play(process, received, subject)
        self._warm = process
        worker = Worker(process, play, patience=self.patience)
        worker.follow(director)
        delivered.error = worker.error  # the invocation failed: the messages are kept
        return delivered

    def start(
        self, what: Letter | Iterable[Letter] | Mapping[str, Any], *, patience: float | None = None
    ) -> tuple[Worker, Delivered]:
        """Invoke the consumer in a worker that stands still at each point until it is told to go on.

        Args:
            what: A message of the mailbox, or several of one queue; or an event.
            patience: Real seconds that it may take from one point to the next; without it the environment's.

        Returns:
            The worker, which stands at its first point, and what it answers, which is empty until it has ended.

        Raises:
            ConfigurationError: If this cannot be delivered.
            NeverSettled: If it does not come to its first point.
        """
        subject, received = self._delivered_to(), self._invoker.receive(what)
        process = self.process()
        play, delivered = self._invoker.play(process, received, subject)
        return Worker(process, play, patience=self.patience if patience is None else patience), delivered

    def redeliver(self, letter: Letter, *, director: Director = pass_all, warm: bool = False) -> Delivered:
        """Deliver a message again, whether it is visible or not: as SQS may at any time.

        One that was acknowledged comes once more, too: at-least-once delivery means that as well.

        Args:
            letter: The message.
            director: As for `deliver`.
            warm: As for `deliver`.

        Returns:
            What the consumer answered.

        Raises:
            ConfigurationError: If this is no message of this environment since the last `reset`, or as for `deliver`.
        """
        __tracebackhide__ = True
        self.mailbox.check_came(letter)
        check_director(director)
        if letter in self.mailbox.letters:
            self.mailbox.come_early(letter)
        else:
            self.mailbox.letters.append(letter)
        return self.deliver(letter, director=director, warm=warm)

    def drain(
        self,
        *,
        only: Callable[[Letter], bool] = lambda _letter: True,
        wait: bool = True,
        director: Director = pass_all,
        warm: bool = False,
    ) -> int:
        """Deliver what lies in the queues until nothing is left, and let the relay send what waits in the outbox.

        Args:
            only: Which messages to deliver; others are left.
            wait: Whether to move the clock on, to when the next message becomes visible or is due in the outbox.
            director: What goes wrong in the processes, the relay's too; nothing, if not given.
            warm: Whether one process takes all deliveries, from the last one's on, for as long as it lives.

        Returns:
            How many invocations there were.

        Raises:
            NeverSettled: If messages come back again and again.
        """
        __tracebackhide__ = True
        check_function("only", only, "gets a message and says whether to deliver it")
        check_director(director)
        invocations = 0
        for _ in range(MOST_ROUNDS):
            mine = [one for one in self.mailbox.lying_in(self.mailbox.places) if one.place.is_consumed and only(one)]
            due = [letter for letter in self.mailbox.due() if letter in mine]
            if due:
                batch = [one for one in due if one.place == due[0].place][:BATCH]
                self.deliver(batch, director=director, warm=warm)
                invocations += 1
                continue
            soonest, relay_at = self.mailbox.next_at(mine), self._relay_at()
            if relay_at is not None and relay_at <= (soonest or relay_at) and (wait or relay_at <= self.clock.now_ms()):
                self._wait_until(relay_at)
                self.relay(director=director)
            elif soonest is not None and wait:
                self._wait_until(soonest)
            else:
                return invocations
        message = f"messages come back again and again, {MOST_ROUNDS} times so far\n{self.timeline.text()[-6_000:]}"
        raise NeverSettled(message)

    def relay(self, *, director: Director = pass_all) -> None:
        """Run the relay once, in a process of its own: it sends what is due in the outbox and was not sent."""
        __tracebackhide__ = True
        check_director(director)
        process = self.process()
        run = self._delivered_to().relay(process, self.seen)
        if run is not None:
            Worker(process, run, patience=self.patience).follow(director)  # if it fails, the next one sends the rest

    def pass_time(self, seconds: float) -> None:
        """Move the clock on, and say so in the timeline."""
        self.clock.advance(seconds)
        self.timeline.add(WORLD, Kind.TIME, f"{lasting(seconds)} pass")

    def _wait_until(self, at_ms: int) -> None:
        if at_ms > self.clock.now_ms():
            self.pass_time((at_ms - self.clock.now_ms()) / 1000)

    def _relay_at(self) -> int | None:
        """Return when the relay finds something to send, epoch ms; ``None`` if nothing waits in the outbox."""
        return min((entry.next_at for entry in self.pending() if entry.next_at is not None), default=None)

    # ------------------------------------------------------------------------------------------- what there is now

    def records(self) -> list[Record]:
        """Return every record of the claims table."""
        return records_of(self.settings.claims_table)

    def record(self, job_type: JobType[..., Any] | str, key: str | int) -> Record | None:
        """Return a job's record.

        Args:
            job_type: The job type, or its name.
            key: The idempotency key.

        Returns:
            The record, or ``None`` if there is none.

        Raises:
            ConfigurationError: If the job type is none.
        """
        check_job_type(job_type, named=True)
        pk = pk_of(job_type if isinstance(job_type, str) else job_type.storage_name, str(key))
        return next((record for record in self.records() if record.pk == pk), None)

    def pending(self) -> list[OutboxEntry]:
        """Return the messages that wait in the outbox, the first one due first."""
        return [one for one in entries_of(self.settings.outbox_table) if one.status == OutboxStatus.PENDING]

    def letters(self, queue: str = "default") -> list[Letter]:
        """Return what lies in a queue, visible or not, in the order of sending."""
        return self.mailbox.lying_in([self.mailbox.place_of(queue)])

    def dead_letters(self) -> list[Letter]:
        """Return what lies in the dead-letter queues; why is in ``letter.attributes["onceq"]``, as JSON."""
        return self.mailbox.lying_in(self.mailbox.dead)

    def redrive(self, letter: Letter) -> Letter:
        """Move a dead letter, its note included, back to its queue, under a new message id.

        Args:
            letter: What lies in a dead-letter queue.

        Returns:
            The new message.

        Raises:
            ConfigurationError: If it lies in none.
        """
        return self.mailbox.back(letter)

    def stock(self, table: str) -> list[dict[str, Any]]:
        """Return every item of a table.

        Args:
            table: The table's own name, as the template or a variable has it.

        Returns:
            The items in DynamoDB's shape, ``{"pk": {"S": "…"}}``.

        Raises:
            ConfigurationError: If there is no such table; it names those that there are.
        """
        check_known("table", table, tables())
        return items_of(table)

    def report(self) -> str:
        """Return the records and the timeline: for the message of a failing assertion."""
        records = [
            f"  {one.pk}  {one.status}  attempt {one.attempts}  {one.error or ''}".rstrip() for one in self.records()
        ]
        return "\n".join(["records:", *(records or ["  none"]), "", "timeline:", self.timeline.text()])

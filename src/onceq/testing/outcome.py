"""What came of a run so far: the effects that recorders and functions counted, and those that the jobs staged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from onceq.steps import open_steps
from onceq.testing.done import Done, leaves
from onceq.testing.recorder import plain
from onceq.testing.staged import commits_of, in_vain_of, messages_of, refused_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceq.catalogue import JobTypes
    from onceq.testing.mailbox import Letter
    from onceq.testing.memory import Effect
    from onceq.testing.tried import Tried
    from onceq.testing.world import Environment


@dataclass(frozen=True)
class Outcome:
    """What came of a run so far.

    Args:
        environment: The world that it is in.
        tried: What is on trial.
        calls: What recorders and functions counted.
    """

    environment: Environment
    tried: Tried
    calls: Sequence[Effect]

    def effects(self) -> list[Done]:
        """Return the effects that there are."""
        keys = {record.pk: record.idempotency_key for record in self.tried.records(self.environment)}
        commits = commits_of(self.environment.timeline.entries, keys, self.environment.settings.outbox_table)
        written = [effect for commit in commits for effect in commit.effects()]
        return [*self._recorded(), *messages_of(self._sent, commits), *written]

    def differing(self) -> list[str]:
        """Return the names of what came with one key and other arguments: it was refused, or will be."""
        called = [one.name for one in self.calls if one.differs]
        return list(dict.fromkeys([*called, *refused_of(self._sent, self._own, self._receivers)]))

    def in_vain(self) -> list[str]:
        """Return the names of what came twice under one key: of calls in one start, of messages to the job itself."""
        seen, first, found = self.environment.seen, set(), list[str]()
        for one in self.calls:
            start = seen.start_of(one.worker, one.job, one.at)
            at = (one.name, one.key, start)
            if one.repeated and not one.differs and start is not None and at in first:
                found.append(one.name)
            first.add(at)
        return list(dict.fromkeys([*found, *in_vain_of(self._sent, self._own, self._receivers)]))

    @property
    def framework(self) -> frozenset[str]:
        """The tables that are the framework's own: of another consumer the claims table is not."""
        calls = [entry.call for entry in self.environment.timeline.entries if entry.call is not None]
        return frozenset({self.environment.settings.outbox_table, *(call.claims_table for call in calls)})

    def _recorded(self) -> list[Done]:
        return [self._done(one) for one in self.calls if one.happened]

    def _done(self, call: Effect) -> Done:
        steps = self._once_in(call.worker, call.at)
        return Done(
            call.name,
            call.key,
            call.worker,
            call.at,
            once=self.tried.starts_once or bool(steps),
            steps=steps,
            in_step=call.in_step,
            job=call.job,
            given=dict(leaves(plain({"": call.arguments, **call.named}))),
        )

    def _once_in(self, worker: str, at: int) -> tuple[str, ...]:
        """Return the steps that a worker was inside and that start at most once, by what it last wrote of its steps."""
        steps = [
            entry.call.steps
            for entry in self.environment.timeline.entries[:at]
            if entry.worker == worker and entry.call is not None and entry.landed and entry.call.steps is not None
        ]
        return tuple(open_steps(steps[-1])) if steps else ()

    @cached_property
    def _letters(self) -> list[Letter]:
        mailbox, dead = self.environment.mailbox, self.environment.dead_letters()
        return [letter for letter in [*mailbox.letters, *mailbox.deleted] if letter not in dead]

    @property
    def _receivers(self) -> JobTypes:
        return self.environment.app_given.job_types

    @property
    def _own(self) -> list[Letter]:
        return [letter for letter in self._letters if self.tried.is_mine(letter)]

    @property
    def _sent(self) -> list[Letter]:
        """The messages to other jobs."""
        return [letter for letter in self._letters if not self.tried.is_mine(letter)]

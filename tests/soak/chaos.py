"""Carries the schedule out: kills, stops and continues processes, refuses connections, and lets the person act."""

from __future__ import annotations

import heapq
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kit.soak_log import now_ms
from soak.plan import Happening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from soak.person import Person
    from soak.stand import Stand


@dataclass
class Chaos:
    """One run of a schedule, in a thread of its own.

    Args:
        stand: What it happens to.
        person: Who redrives and resolves.
        happenings: The schedule.
    """

    stand: Stand
    person: Person
    happenings: Sequence[Happening]
    done: Counter[str] = field(default_factory=Counter)
    kills: list[dict[str, Any]] = field(default_factory=list)
    zombies: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _hands: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Begin; the times of the schedule count from now."""
        self.stand.proxy.senders = self
        self._begin(self._run)

    def kill_sender(self, pid: int) -> None:
        """Kill the process that sent a request."""
        who = self.stand.who(pid)
        if who is not None and self._kill(who):
            self.done["kill at a request"] += 1

    def stop_sender(self, pid: int) -> bool:
        """Stop the process that sent a request; return whether it is stopped by this."""
        who = self.stand.who(pid)
        if who is None or not self._stop(who):
            return False
        self.done["stop at a request"] += 1
        return True

    def continue_sender(self, pid: int) -> None:
        """Continue a process that was stopped at a request, if nobody has killed it meanwhile."""
        who = self.stand.who(pid)
        if who is not None:
            self._continue(who)

    def stop(self) -> None:
        """Let nothing more happen: everything that is stopped is continued, and the person puts down what he has."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for who, process in enumerate(self.stand.processes):
            if process.is_stopped:
                self._continue(who)

    def _run(self) -> None:
        started = time.monotonic()
        coming = [(one.at, number, one) for number, one in enumerate(self.happenings)]
        heapq.heapify(coming)
        while coming:
            at, number, one = heapq.heappop(coming)
            if self._stopping.wait(max(0.0, at - (time.monotonic() - started))):
                return
            if one.what == "stop" and self._stop(one.who):
                heapq.heappush(coming, (at + one.seconds, number, Happening(at + one.seconds, "continue", one.who)))
            elif one.what == "continue":
                self._continue(one.who)
            elif one.what == "kill":
                self._kill(one.who)
            elif one.what != "stop":
                self._begin(lambda one=one: self._by_hand(one))

    def _begin(self, run: Any) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _kill(self, who: int) -> bool:
        pid = self.stand.send(who, signal.SIGKILL)
        if pid is not None:
            self.done["kill"] += 1
            self.kills.append({"at": now_ms(), "pid": pid, "name": self.stand.processes[who].name})
        return pid is not None

    def _stop(self, who: int) -> bool:
        if self.stand.processes[who].is_stopped:
            return False
        pid = self.stand.send(who, signal.SIGSTOP)
        if pid is not None:
            self.done["stop"] += 1
            self.zombies.append({"pid": pid, "from": now_ms(), "to": 0, "name": self.stand.processes[who].name})
        return pid is not None

    def _continue(self, who: int) -> None:
        pid = self.stand.send(who, signal.SIGCONT)
        self.person.last_continued = now_ms()
        for zombie in self.zombies:
            if zombie["pid"] == pid and not zombie["to"]:
                zombie["to"] = now_ms()

    def _by_hand(self, one: Happening) -> None:
        try:
            if one.what == "outage":
                self.stand.be_down(one.seconds)
            else:
                with self._hands:
                    {"redrive": self.person.redrive, "resolve": self.person.resolve, "recover": self.person.recover}[
                        one.what
                    ]()
            self.done[one.what] += 1
        except Exception as error:  # noqa: BLE001 - told in the report: a soak whose person fails shows less
            self.errors.append(f"{one.what} failed: {type(error).__name__}: {error}")

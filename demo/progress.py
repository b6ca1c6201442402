"""How a run stands while it lasts: counts, and the last lines of what is worth telling."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LAST_LINES = 8


@dataclass(slots=True)
class Progress:
    """How a run stands; `story` holds the last lines of what is worth telling."""

    messages: int
    sent: int = 0
    left: int = 0
    workers: int = 0
    names: Counter[str] = field(default_factory=Counter)
    entries: set[str] = field(default_factory=set)
    relayed: int = 0
    kills: int = 0
    provider_kills: int = 0
    story: list[str] = field(default_factory=list)

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.story = [*self.story, line][-LAST_LINES:]

    def note(self, event: Mapping[str, Any]) -> None:
        """Count an event, and tell what is worth it."""
        self.names[event["name"]] += 1
        if event["name"] == "outbox.sent":
            self.entries.add(event["entry"])
        match event["name"]:
            case "process.killed":
                self.kills += 1
                self.tell(f"{event['who']} {event['pid']} killed {event['moment']}: {event['job_type']} {event['key']}")
            case "job.taken_over":
                said = f"{event['job_type']} {event['key']} over, attempt {event['attempt']}"
                self.tell(f"worker {event['pid']} takes {said}")
            case "step.replayed":
                self.tell(f"{event['job_type']} {event['key']}: step {event['step']} is answered from its record")
            case "outbox.sent" if event["who"] == "relay":
                self.relayed += 1
                self.tell(f"the relay sends {event['job_type']} {event['key']}")
            case "job.held" if not event["before"]:
                self.tell(f"{event['job_type']} {event['key']} is uncertain and waits for a person")
            case "claim.lost":
                self.tell(f"worker {event['pid']} has lost its claim of {event['job_type']} {event['key']}")

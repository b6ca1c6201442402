"""The relay's process of the demo: what a schedule does every minute, every second. It dies on orders, too."""

from __future__ import annotations

from app import app
from demo.deaths import Deaths
from demo.events import EventFile
from onceq.worker import send_on

EVERY_SECONDS = 1.0

if __name__ == "__main__":
    events = EventFile("relay")
    send_on(app, every=EVERY_SECONDS, hooks=[events, Deaths(events).hook], follow_stdin=True)

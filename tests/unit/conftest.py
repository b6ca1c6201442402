"""How hypothesis runs here."""

from __future__ import annotations

from hypothesis import settings

# No time limit for an example, since the machine may be busy; nothing written beside the tests.
settings.register_profile("onceq", deadline=None, database=None)
settings.load_profile("onceq")

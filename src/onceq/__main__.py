"""``python -m onceq``."""

from __future__ import annotations

import sys

from onceq.cli import main

sys.exit(main())

"""The table: bugs that people met in public, what happens here instead, and the scenes that show it.

The numbers are those of the survey that it was taken from; the ones that are missing there were no bugs.
"""

from __future__ import annotations

from public_bugs.first_rows import FIRST
from public_bugs.later_rows import LATER

# Every row of the survey.
NUMBERS = (
    *range(1, 13),
    *(14, 15, 17, 18, 19, 21),
    *range(23, 30),
    *(31, 32, 33, 34, 35, 37, 38, 39, 41, 42),
    *range(44, 56),
    *(57, 58, 59, 60),
)
# Rows that cannot reach us, each with the reason.
NOT_OURS: dict[int, str] = {}
ROWS = FIRST | LATER

"""Which records of a batch run one after another.

Records of one FIFO message group, or of one job, form a lane: in order, stopped at the first outcome that keeps its
message. Everything else is a lane of its own. ``MessageGroupId`` on a standard queue names a tenant and is no order
(https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def lanes_of(shared: Sequence[Sequence[Hashable]]) -> list[list[int]]:
    """Group positions that share anything, directly or through others.

    Args:
        shared: For each record what it shares with others: its message group, its job.

    Returns:
        The lanes, each in order of position, the lanes in order of their first.

    Example:
        >>> lanes_of([["group a"], ["job 1"], ["group a", "job 2"], ["job 2"]])
        [[0, 2, 3], [1]]
    """
    parent = list(range(len(shared)))

    def root(position: int) -> int:
        while parent[position] != position:
            parent[position] = parent[parent[position]]
            position = parent[position]
        return position

    first: dict[Hashable, int] = {}
    for position, things in enumerate(shared):
        for thing in things:
            mine, theirs = root(position), root(first.setdefault(thing, position))
            parent[max(mine, theirs)] = min(mine, theirs)
    lanes: dict[int, list[int]] = {}
    for position in range(len(shared)):
        lanes.setdefault(root(position), []).append(position)
    return list(lanes.values())

"""The nightly report: started by the clock (template.yaml's NightlyReportSchedule), once for each night."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict

from onceq import Context, job


class Night(TypedDict):
    """What the schedule sends: when this run was scheduled, as ``2026-11-30T02:00:00Z``."""

    scheduled_at: str


# What makes it run once is its key, which the schedule makes of the scheduled time: a trigger that comes twice is a
# duplicate. The lock only saves work: two nights' reports, one of them late, do not run side by side.
@job("nightly_report", lock="nightly_report", max_attempts=3, max_duration=25)
def nightly_report(night: Night, ctx: Context) -> dict[str, Any]:
    """Report the day before the scheduled time, which is the same on every attempt; the time of day now is not."""
    until = datetime.fromisoformat(night["scheduled_at"])
    since = until - timedelta(days=1)
    orders = count_orders(since, until)
    ctx.log.info("reported", extra={"orders": orders})
    return {"since": since.isoformat(), "until": until.isoformat(), "orders": orders}


def count_orders(since: datetime, until: datetime) -> int:
    """Count the orders between two times; put your own query here."""
    return 0

"""What a person sees: how the run stands while it lasts, and the table at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from demo.progress import Progress
    from demo.report import Report
    from demo.run import Options

BAR_WIDTH = 30
NUMBER_WIDTH = 6
AGAIN = "a message comes again after a failure, a kill or a visibility timeout"
Row = tuple[str, int, str]


class Live:
    """The view of a run that lasts."""

    def __init__(self, options: Options) -> None:
        """Start counting the seconds."""
        self._options = options
        self._started = time.monotonic()

    def __call__(self, progress: Progress) -> RenderableType:
        """Return how the run stands."""
        settled = progress.sent - progress.left
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=progress.messages, completed=settled, width=BAR_WIDTH),
            f"{settled} of {progress.messages} messages" if settled else "starting…",
            f"{time.monotonic() - self._started:.0f} s",
        )
        names = progress.names
        jobs = {
            "completed": names["job.completed"],
            "replayed": names["job.replayed"],
            "deferred": names["job.deferred"],
            "retried": names["job.retried"],
        }
        ends = {
            "rejected": names["job.rejected"],
            "uncertain": names["job.held"],
            "sent on": len(progress.entries),
            "by the relay": progress.relayed,
        }
        crashes = {"workers": progress.workers, "killed": progress.kills, "taken over": names["job.taken_over"]}
        story = Text("\n".join(progress.story), style="dim", no_wrap=True, overflow="ellipsis")
        return Padding(Group(title(self._options), "", bar, _counts(jobs, ends, crashes), "", story), (1, 2))


def title(options: Options) -> Text:
    """Return the line that says what runs."""
    jobs = "two of the jobs careless" if options.careless else "the jobs of src/app.py"
    relay = "" if options.relay else ", and no relay"
    what = f"{options.payments} payments and what belongs to them, {options.workers} workers"
    return Text.assemble((what, "bold"), f", {jobs}{relay}")


def text(report: Report, console: Console) -> str:
    """Return the table for a file or a pipe: no margin, and no blanks that pad a line."""
    with console.capture() as capture:
        console.print(_table(report))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def table(report: Report) -> RenderableType:
    """Return the report as a table and a verdict, with a margin."""
    return Padding(_table(report), (1, 2))


def _table(report: Report) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", min_width=NUMBER_WIDTH)
    grid.add_column(style="dim")
    for heading, rows in _sections(report):
        grid.add_row(Text(heading, style="bold"))
        for label, number, remark in rows:
            grid.add_row(f"  {label}", str(number), remark)
    return Group(grid, "", _verdict(report))


def _sections(report: Report) -> Iterator[tuple[str, list[Row]]]:
    yield (
        "Consumed",
        [
            ("jobs", report.jobs, "one for each idempotency key"),
            ("deliveries", report.deliveries, f"of {report.messages + report.outbox_sent} messages; {AGAIN}"),
            ("attempts", report.attempts, "starts of a job"),
            ("replays", report.replays, "duplicates answered with the stored result"),
            ("retries", report.retries, "of failed jobs, after a back-off"),
            ("deferred", report.deferred, "messages that met a busy job"),
        ],
    )
    yield (
        "Crashed",
        [
            *(("killed", number, moment) for moment, number in report.kills_by_moment.items()),
            ("taken over", report.takeovers, "jobs that killed workers held"),
            ("steps", report.steps_replayed, "answered from their record, not run again"),
        ],
    )
    yield (
        "Ended",
        [
            ("completed", report.completed, ""),
            *(("rejected", number, reason) for reason, number in report.rejected_by_reason.items()),
            *(("refused", number, reason) for reason, number in report.refused_by_reason.items()),
            ("uncertain", report.uncertain, "at most once, and killed on the way: they wait for a person"),
            ("dead-lettered", report.dead_lettered, "messages, each with its reason"),
            ("lost", report.lost, "messages"),
        ],
    )
    yield (
        "Charged",
        [
            ("calls", report.raw_calls, "to the payment provider"),
            ("charges", report.charges, _not_charging(report.raw_calls - report.charges)),
            *(_charged(int(times), jobs) for times, jobs in {"1": 0, "2": 0, **report.charges_per_job}.items()),
        ],
    )
    yield (
        "Sent on",
        [
            ("sent", report.outbox_sent, "messages, each with the completion that it belongs to"),
            ("by the relay", report.outbox_sent_by_relay, "of them, after a crash between commit and sending"),
            ("sent again", report.outbox_sent_again, "of them, after a crash before the mark; the key is the same"),
            ("pending", report.outbox_pending, "messages left in the outbox"),
        ],
    )
    yield (
        "Done",
        [
            ("receipts", report.receipts, _of(report.receipts_twice, report.receipts_missing)),
            ("webhooks", report.webhooks, _of(report.webhooks_twice, report.webhooks_missing)),
            (
                "reserved",
                report.stock_reserved,
                f"pieces of stock; {report.stock_reserved_twice} twice, {report.stock_below_zero} articles below zero",
            ),
            ("booked", report.legacy_called, f"at the legacy system; {report.legacy_called_twice} twice"),
            ("reports", report.nightly_runs, f"for {report.nightly_triggers} triggers of one night"),
        ],
    )


def _of(twice: int, missing: int) -> str:
    return f"{twice} twice, {missing} missing"


def _not_charging(calls: int) -> str:
    return f"{calls} calls failed, were declined, or the provider knew the key and charged once" if calls else ""


def _charged(times: int, jobs: int) -> Row:
    remark = "orders" if times else "orders: rejected, declined"
    return (
        {0: "not charged", 1: "charged once", 2: "charged twice"}.get(times, f"charged {times} times"),
        jobs,
        remark,
    )


def _verdict(report: Report) -> Text:
    if report.ok:
        line = "Every effect happened once, the uncertain ones at most once, and no message was lost."
        return Text.assemble(("✓ ", "bold green"), (line, "bold"), f" {report.seconds} s")
    lines = [Text.assemble(("✗ ", "bold red"), problem) for problem in report.problems]
    return Text("\n").join(lines)


def _counts(*rows: dict[str, int]) -> Table:
    grid = Table.grid(padding=(0, 1))
    for counts in rows:
        cells = ((Text(name), Text(f"{number:<5}", style="bold cyan")) for name, number in counts.items())
        grid.add_row(*(cell for pair in cells for cell in pair))
    return grid

"""Your application: the job types it serves, and the Lambda handlers that `template.yaml` names."""

from __future__ import annotations

from jobs import ledger, legacy, payments, receipts, reports, stock, webhooks
from onceq import App

app = App(
    [
        payments.process_payment,
        receipts.send_receipt,
        webhooks.deliver_webhook,
        stock.reserve_stock,
        legacy.book_order,
        reports.nightly_report,
        ledger.post_entry,  # of a queue of its own
    ]
)
consumer, relay, recovery = app.consumer, app.relay, app.recovery

"""Your application: the job types it serves, and the Lambda handlers that `template.yaml` names."""

from __future__ import annotations

from jobs import payments, receipts
from onceq import App

app = App([payments.process_payment, receipts.send_receipt])
consumer = app.consumer

"""Your job types, one module each. These are examples; read them in this order.

- `payments`: a step at a provider that takes idempotency keys, and a message that is sent with the completion.
- `receipts`: what that message starts, an ``async def`` job.
- `webhooks`: the smallest one, a single call with a key.
- `stock`: a write to a DynamoDB table of your own, together with the completion.
- `legacy`: a system without idempotency keys: at most once, and uncertain where nobody knows.
- `reports`: started by a schedule, with a key for each run.
- `ledger`: in order, on a queue and a function of its own.

`gateway` is what they call.
"""

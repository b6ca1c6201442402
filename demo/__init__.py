"""The example jobs, end to end, on an embedded moto: `make demo`, or `python -m demo`.

Read `plan` (what is enqueued), `provider` and its `ledger` (whom the jobs call), `worker` (what a worker process runs),
`deaths` (where one kills itself), `relay` (what sends what was left in the outbox), `workers` (who replaces a killed
process), `run` (all of it together), `events` and `seen` (what was observed), `report` and `checks` (what was measured,
and what must hold), `progress` and `screen` (what a person sees). `careless` is two jobs with a mistake, to see the
check fail.
"""

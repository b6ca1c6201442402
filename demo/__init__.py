"""The main job, end to end, on an embedded moto: `make demo`, or `python -m demo`.

Read `plan` (what is enqueued), `provider` (whom the jobs charge), `worker` (what a worker process runs), `workers` (who
replaces a killed one), `run` (all of it together), `report` (what was measured, and what must hold) and `screen` (what
a person sees). `careless` is the same job with a mistake, to see the check fail.
"""

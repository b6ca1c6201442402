"""The default hook: Powertools for AWS Lambda logs the events and counts them."""

from __future__ import annotations

import threading
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from onceq.telemetry import LOGGER

if TYPE_CHECKING:
    import logging

    from onceq.telemetry import Event


class PowertoolsHook:
    """Log events as JSON and count them as metrics, with Powertools for AWS Lambda.

    Loaded on first use, so that an application with hooks of its own never pays for it. Events are logged at once;
    metrics are collected and written once a batch by the invoking thread, since Powertools' Metrics is not made for
    threads (https://docs.powertools.aws.dev/lambda/python/latest/core/metrics/). The namespace and service come from
    ``POWERTOOLS_METRICS_NAMESPACE`` and ``POWERTOOLS_SERVICE_NAME``, as always with Powertools.

    Example:
        >>> from onceq import App
        >>> [type(hook).__name__ for hook in App([]).hooks]
        ['PowertoolsHook']
    """

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._request: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Log the event and count it."""
        values = event.fields()
        with self._lock:
            # Made under the lock: two threads that make it at once would leave it two handlers, and every line twice.
            logger = self._logger
            if event.metric is not None:
                self._counts[event.metric, str(values.get("job_type", ""))] += 1
        logger.log(event.level, event.name, extra={"event": event.name, **self._request, **values})

    def begin(self, context: object) -> None:
        """Put the request id of a Lambda invocation on every line until the next one."""
        request_id = getattr(context, "aws_request_id", None)
        self._request = {"function_request_id": str(request_id)} if request_id else {}

    def flush(self) -> None:
        """Write what was counted since the last time as one EMF line a job type."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit  # noqa: PLC0415 - loaded on first use

        for job_type in sorted({job_type for _, job_type in counts}):
            metrics = EphemeralMetrics(namespace=self._namespace)
            if job_type:
                metrics.add_dimension(name="job_type", value=job_type)
            for (metric, of), count in counts.items():
                if of == job_type:
                    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=count)
            metrics.flush_metrics()

    @cached_property
    def _namespace(self) -> str:
        import os  # noqa: PLC0415 - read at the first flush, not at import

        return os.environ.get("POWERTOOLS_METRICS_NAMESPACE", LOGGER)

    @cached_property
    def _logger(self) -> logging.Logger:
        from aws_lambda_powertools import Logger  # noqa: PLC0415 - loaded on first use

        return Logger()  # type: ignore[return-value]  # it has a Logger's methods

"""Metrics: the names that Prometheus sees, and samples as the text that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from evenbeat.rules.rollups import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]
MetricScope: TypeAlias = Literal["tenant", "store"]
"""``tenant``: a token of one tenant sees its part. ``store``: such a token does not see the metric."""


class Metric(NamedTuple):
    """The description of one metric."""

    name: str
    kind: MetricKind
    scope: MetricScope
    labels: tuple[str, ...]
    help: str


_TENANT = ("tenant",)
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "scheduler_runs_total",
            "counter",
            "tenant",
            ("tenant", "schedule_id", "status"),
            "Runs of a schedule that ended, by status: succeeded, failed or cancelled. If there are more "
            "schedules than the bound: all runs that nodes ended, without schedule_id.",
        ),
        Metric(
            "scheduler_last_run_timestamp",
            "gauge",
            "tenant",
            ("tenant", "schedule_id"),
            "When the last run of a schedule ended, in seconds since 1970.",
        ),
        Metric(
            "scheduler_next_run_timestamp",
            "gauge",
            "tenant",
            ("tenant", "schedule_id"),
            "When the next tick of an active schedule is due, in seconds since 1970.",
        ),
        Metric(
            "scheduler_run_duration_seconds",
            "histogram",
            "tenant",
            ("tenant", "task"),
            "How long attempts took that succeeded or failed.",
        ),
        Metric(
            "scheduler_lock_failures_total",
            "counter",
            "store",
            ("lock", "reason"),
            "Locks that a node did not get. lock=schedules: another node was firing the due schedules "
            "(held), the database refused what one of them writes (refused), or the store failed (error). "
            "lock=named, which is app.lock(…): another holder had it (held), it was lost in its block "
            "(lost), or the store failed (error).",
        ),
        Metric(
            "evenbeat_runs_total",
            "counter",
            "tenant",
            ("tenant", "status"),
            "Runs that nodes ended, with or without a schedule, by status: succeeded, failed or cancelled.",
        ),
        Metric("evenbeat_attempts_total", "counter", "tenant", _TENANT, "Attempts that began."),
        Metric(
            "evenbeat_retries_total",
            "counter",
            "tenant",
            _TENANT,
            "Attempts that failed and are followed by another one.",
        ),
        Metric(
            "evenbeat_takeovers_total",
            "counter",
            "tenant",
            _TENANT,
            "Attempts that another process ended, since their worker died or stopped heartbeating.",
        ),
        Metric(
            "evenbeat_handed_back_total",
            "counter",
            "tenant",
            _TENANT,
            "Attempts that were handed back to the queue, since their node stopped or was too busy.",
        ),
        Metric("evenbeat_ticks_fired_total", "counter", "tenant", _TENANT, "Ticks that became runs."),
        Metric(
            "evenbeat_ticks_skipped_total",
            "counter",
            "tenant",
            ("tenant", "reason"),
            "Ticks that did not become runs of their own, by reason.",
        ),
        Metric(
            "evenbeat_tick_lateness_seconds",
            "histogram",
            "tenant",
            _TENANT,
            "How long after its planned time the first attempt of a run started.",
        ),
        Metric(
            "evenbeat_schedules_overdue",
            "gauge",
            "tenant",
            (),
            "Active schedules that should have fired over 30 seconds ago; at most 100 are counted.",
        ),
        Metric(
            "evenbeat_claim_latency_seconds",
            "histogram",
            "store",
            (),
            "How long a run waited from when it could be claimed until a worker claimed it.",
        ),
        Metric(
            "evenbeat_duplicates_prevented_total",
            "counter",
            "store",
            ("kind",),
            "Work that the store refused since another node had done it: ticks that were fired already "
            "(tick; 0 on databases that lock rows), and ends of attempts that came too late (end).",
        ),
        Metric(
            "evenbeat_lease_losses_total",
            "counter",
            "store",
            (),
            "Attempts whose worker lost the lease, and whose result did not count.",
        ),
        Metric(
            "evenbeat_queue_depth",
            "gauge",
            "store",
            ("queue", "state"),
            "Queued runs: those that may be claimed now (due), and those for later (later).",
        ),
        Metric(
            "evenbeat_queue_oldest_seconds",
            "gauge",
            "store",
            ("queue",),
            "For how long the longest waiting of the due runs of a queue has been due; 0 if none is.",
        ),
        Metric("evenbeat_runs_in_flight", "gauge", "store", ("queue",), "Runs that workers hold."),
        Metric(
            "evenbeat_limit_running",
            "gauge",
            "store",
            ("limit",),
            "Runs that a limit counts as running; only if there are at most 200 limits.",
        ),
        Metric(
            "evenbeat_limit_waiting",
            "gauge",
            "store",
            ("limit",),
            "Due runs that a limit does not admit now; only if there are at most 200 limits.",
        ),
        Metric("evenbeat_node_up", "gauge", "store", ("node", "host", "version"), "1 for each live node."),
        Metric(
            "evenbeat_nodes",
            "gauge",
            "store",
            ("duty",),
            "Live nodes that fire schedules (ticker), and those that execute runs (worker).",
        ),
        Metric(
            "evenbeat_store_call_seconds",
            "histogram",
            "store",
            ("operation",),
            "How long calls of the store took, also those that failed.",
        ),
        Metric(
            "evenbeat_store_errors_total",
            "counter",
            "store",
            ("operation",),
            "Calls of the store that failed.",
        ),
        Metric(
            "evenbeat_alerts_sent_total",
            "counter",
            "store",
            ("channel", "outcome"),
            "Alerts that nodes sent, by the kind of channel, and whether that succeeded.",
        ),
    )
}
"""Every metric, by name, in the order in which they are exported."""

# Bucket n of rollups ends before 2^n ms. Those from 4.7 hours on are exported as one.
_BOUNDS = 25
BUCKET_NAMES = (*(f"{(1 << at) / 1000:g}" for at in range(_BOUNDS)), "+Inf")


class Exposition:
    """Samples of metrics, to be encoded for Prometheus."""

    def __init__(self, scopes: Sequence[MetricScope]) -> None:
        self._samples: dict[str, list[tuple[str, dict[str, str], float]]] = {
            name: [] for name, metric in METRICS.items() if metric.scope in scopes
        }

    def add(self, name: str, value: float, **labels: str) -> None:
        """Add a sample of a counter or a gauge."""
        self._samples[name].append((name, _labels(labels), value))

    def add_histogram(self, name: str, buckets: Sequence[int], us: int, **labels: str) -> None:
        """Add a histogram: the buckets of rollups, and the sum of all lengths in microseconds."""
        assert len(buckets) == BUCKETS
        safe, samples = _labels(labels), self._samples[name]
        cumulative = list(accumulate(buckets))
        values = (*cumulative[:_BOUNDS], cumulative[-1])
        for bound, value in zip(BUCKET_NAMES, values, strict=True):
            samples.append((f"{name}_bucket", {**safe, "le": bound}, value))
        samples.append((f"{name}_count", safe, cumulative[-1]))
        samples.append((f"{name}_sum", safe, us / 1_000_000))

    def encode(self, accept: str = "") -> tuple[bytes, str]:
        """Return the samples in the format that an Accept header asks for, and its content type."""
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import choose_encoder
        except ModuleNotFoundError as error:
            raise ImportError(
                "metrics need prometheus-client, which is not installed; pip install 'evenbeat[metrics]'",
                name=error.name,
            ) from error
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def collect(self) -> Iterator[Family]:
        """Yield the families, as a collector of prometheus-client does."""
        from prometheus_client.core import Metric as Family

        for name, samples in self._samples.items():
            metric = METRICS[name]
            family = Family(name.removesuffix("_total"), metric.help, metric.kind)
            for sample, labels, value in samples:
                family.add_sample(sample, labels, value)
            yield family


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels that can be encoded: a damaged row may have any name."""
    return {
        name: value if value.isascii() else value.encode(errors="replace").decode()
        for name, value in labels.items()
    }

"""Values of the metrics of a daemon in this process."""

from __future__ import annotations

from rmq_remoting.daemon.daemon_metrics import DaemonMetrics


def metric(metrics: DaemonMetrics, name: str) -> float:
    """Return the value of a metric that has one series."""
    families = (each for found in metrics.registry.collectors() for each in found.collect())
    ((_, value),) = next(list(each.series) for each in families if each.name == name)
    assert isinstance(value, (int, float))
    return value

"""Values of the metrics of a daemon in this process."""

from __future__ import annotations

from rmq_remoting.daemon.daemon_metrics import DaemonMetrics
from rmq_remoting.daemon.histogram import Histogram


def metric(metrics: DaemonMetrics, name: str) -> float:
    """Return the value of a metric that has one series."""
    (value,) = _values(metrics, name)
    assert isinstance(value, (int, float))
    return value


def observations(metrics: DaemonMetrics, name: str) -> int:
    """Return the number of observations of a histogram, in all of its series."""
    histograms = [value for value in _values(metrics, name) if isinstance(value, Histogram)]
    return sum(sum(histogram.counts) for histogram in histograms)


def _values(metrics: DaemonMetrics, name: str) -> list[object]:
    families = (each for found in metrics.registry.collectors() for each in found.collect())
    return [value for each in families if each.name == name for _, value in each.series]

"""The metric of the latencies of requests, which all ports of a process share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .exposition import Family
from .histogram import Histogram

# Values of the labels of `rocketmq_rpc_latency_milliseconds`, in the order of their names.
LatencyLabels = tuple[str, ...]
# Further latencies of the process by labels, such as those of gRPC calls.
FurtherLatencies = Callable[[], Mapping[LatencyLabels, Histogram]]


def rpc_latency(series: Mapping[LatencyLabels, Histogram]) -> Family:
    """Return the latencies of requests as a metric (Apache RocketMQ 5.3.3, RemotingMetricsManager)."""
    return Family(
        "rocketmq_rpc_latency_milliseconds",
        "histogram",
        "From the read of a request to its answer; of one that was held, with that time.",
        series.items(),
        ("request_code", "response_code", "is_long_polling", "result", "protocol_type"),
    )

"""Latencies of gRPC calls, by method and status."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from rmq_remoting.daemon.histogram import Histogram
from rmq_remoting.daemon.latency_metrics import LatencyLabels
from rmq_remoting.dispatch import LATENCY_BOUNDS_MS

from .protocol.definition_pb2 import Code

_PROTOCOL: Final = "grpc"
_HELD: Final = frozenset({"ReceiveMessage", "PullMessage"})
_CODES: Final = frozenset(Code.values())
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


class RpcLatencies:
    """Latencies of gRPC calls, by method and by the code of the status. Belongs to one loop."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, int], Histogram] = {}
        # Calls that have begun and not ended, by method. Telemetry streams are counted here alone.
        self.open: Counter[str] = Counter()

    def observe(self, method: str, code: int, seconds: float) -> None:
        """Count a call that was answered; a call of several statuses has its first one."""
        key = (method, code)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Histogram(LATENCY_BOUNDS_MS)
        histogram.observe(seconds * 1000)

    def series(self) -> dict[LatencyLabels, Histogram]:
        """Return the histograms by the labels of `rocketmq_rpc_latency_milliseconds`."""
        return {
            (label(method), _name(code), str(method in _HELD).lower(), "success", _PROTOCOL): histogram
            for (method, code), histogram in self._histograms.items()
        }


def label(method: str) -> str:
    """Return the name of a method as label, in the form of the remoting protocol's request codes."""
    return _WORD.sub("_", method).lower()


def _name(code: int) -> str:
    return Code.Name(code).lower() if code in _CODES else str(code)

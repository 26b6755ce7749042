"""Background probes of brokers that could not be reached.

Source of the rules: Apache RocketMQ 5.3.3, LatencyFaultToleranceImpl.detectByOneRound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from .fault_tolerance import BrokerHealth

log = logging.getLogger(__name__)

Probe = Callable[[str], Awaitable[bool | None]]
"""Whether a broker answers; None for a broker that is in no route any more. Must not raise."""


class FaultDetector:
    """Probes unreachable brokers in intervals. Belongs to the producer's loop."""

    def __init__(self, health: BrokerHealth, probe: Probe, interval_seconds: float) -> None:
        self._health = health
        self._probe = probe
        self._interval_seconds = interval_seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start probing."""
        self._task = asyncio.create_task(self._keep_detecting(), name="rmq fault detector")

    async def stop(self) -> None:
        """Stop probing."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def detect(self) -> None:
        """Probe all brokers that are due, side by side."""
        await asyncio.gather(*(self._detect_one(name) for name in self._health.to_probe()))

    async def _detect_one(self, broker_name: str) -> None:
        answers = await self._probe(broker_name)
        if answers is None:
            self._health.forget(broker_name)
        elif answers:
            log.info("broker reachable again name=%s", broker_name)
            self._health.reached(broker_name)

    async def _keep_detecting(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            try:
                await self.detect()
            except Exception:
                log.exception("probes of unreachable brokers failed; the next round follows")

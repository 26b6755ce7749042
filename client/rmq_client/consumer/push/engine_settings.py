"""Settings of a push consumer that count while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..flow_control import FlowControl
from ..offsets.start_position import ConsumeFrom
from ..processing.listener import ListenerKind
from ..rebalancing.allocation import Allocation
from ..requests.pull_client import PullSettings
from ..timing import ConsumerTiming


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The arguments of PushConsumer that count while it runs; see there."""

    group: str
    kind: ListenerKind
    broadcasting: bool
    consume_from: ConsumeFrom
    workers: int
    batch_size: int
    max_reconsume_times: int | None
    suspend_seconds: float
    offsets_folder: Path
    pull: PullSettings
    flow_control: FlowControl
    allocation: Allocation
    timing: ConsumerTiming

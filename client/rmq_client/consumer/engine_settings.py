"""What a push consumer was asked to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .allocation import Allocation
from .listener import ListenerKind
from .process_queue import FlowControl
from .pull_client import PullSettings
from .pulling import ConsumerTiming
from .start_position import ConsumeFrom


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
    suspend_ms: int
    offsets_folder: Path
    pull: PullSettings
    flow_control: FlowControl
    allocation: Allocation
    timing: ConsumerTiming

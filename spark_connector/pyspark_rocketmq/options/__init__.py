"""Options of `format("rocketmq")`: their declaration, their checks on the driver, and their reference."""

from __future__ import annotations

from .parsing import Mode
from .positions import Anchor, AtOffsets, AtTime, AtTimes, Position
from .read_options import ReadOptions
from .write_options import WriteOptions

__all__ = ["Anchor", "AtOffsets", "AtTime", "AtTimes", "Mode", "Position", "ReadOptions", "WriteOptions"]

"""The state of POP that requests read and change, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .in_flight import InFlight
    from .journal import Journal
    from .orders import OrderTable
    from .positions import Positions


@dataclass(frozen=True, slots=True)
class PopState:
    """Messages in flight, the offsets that follow from them, and the journal that outlives a crash."""

    journal: Journal
    in_flight: InFlight
    positions: Positions
    orders: OrderTable

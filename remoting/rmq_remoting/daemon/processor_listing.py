"""The processor table as text for people: the output of `--print-processors`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..dispatch import Dispatcher
from ..tiers import Tier

_HEAD: Final = ("code", "request", "tier")
_TIER_HEAD: Final = ("tier", "kind", "threads", "capacity", "longest wait")


def processor_listing(dispatcher: Dispatcher) -> str:
    """Return every request code with its tier, then every tier with its bounds."""
    rows = [(str(row.code), row.name, row.tier.name) for row in dispatcher.registrations()]
    return f"{_table(_HEAD, rows)}\n{_table(_TIER_HEAD, [_tier_row(tier) for tier in dispatcher.tiers()])}"


def _tier_row(tier: Tier) -> tuple[str, ...]:
    return tier.name, tier.kind, str(tier.threads or "-"), str(tier.capacity), f"{tier.max_wait_ms} ms"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )

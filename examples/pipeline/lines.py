"""Lines of an access log in the combined format, counted by minute and status."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

MINUTE: Final = timedelta(minutes=1)

# Address, two names, the time up to its minute and its zone, the request, the status, the size.
_LINE: Final = re.compile(
    rb'\S+ \S+ \S+ \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d):\d\d ([+-]\d{4})\] "[^"]*" (\d{3}) (?:\d+|-)'
)

Key = tuple[datetime, int]
_Raw = tuple[bytes, bytes, bytes]


@dataclass(slots=True)
class Tally:
    """Number of lines by minute (UTC) and status, and number of unreadable lines."""

    counts: Counter[Key] = field(default_factory=Counter)
    unreadable: int = 0

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> Tally:
        """Count lines."""
        raw: Counter[_Raw | None] = Counter()
        for line in lines:
            match = _LINE.match(line)
            # Many lines share minute and status: the expensive parsing runs once per pair.
            raw[None if match is None else (match[1], match[2], match[3])] += 1
        tally = cls(unreadable=raw.pop(None, 0))
        for key, count in raw.items():
            if key is not None:
                tally.counts[_key(key)] += count
        return tally

    @property
    def total(self) -> int:
        """The number of all lines."""
        return self.counts.total() + self.unreadable

    @property
    def last_minute(self) -> datetime:
        """The newest minute with lines. Raises ValueError if there is none."""
        return max(minute for minute, _ in self.counts)

    def save(self, path: Path) -> None:
        """Write the counts as JSON."""
        rows = [(minute.isoformat(), status, count) for (minute, status), count in self.counts.items()]
        path.write_text(json.dumps({"unreadable": self.unreadable, "counts": sorted(rows)}))

    @classmethod
    def load(cls, path: Path) -> Tally:
        """Read counts written by `save`."""
        saved = json.loads(path.read_text())
        rows = saved["counts"]
        counts = Counter({(datetime.fromisoformat(minute), status): count for minute, status, count in rows})
        return cls(counts, saved["unreadable"])


def _key(raw: _Raw) -> Key:
    moment = datetime.strptime(f"{raw[0].decode()} {raw[1].decode()}", "%d/%b/%Y:%H:%M %z")
    return moment.astimezone(UTC), int(raw[2])


def log_line(moment: datetime, address: str, request: str, status: int, size_bytes: int, agent: str) -> str:
    """Parse one line, given without its line end."""
    when = moment.strftime("%d/%b/%Y:%H:%M:%S %z")
    return f'{address} - - [{when}] "{request}" {status} {size_bytes} "-" "{agent}"'


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A minute is an alert if `percent` of its lines, and at least `errors`, have a 5xx status."""

    percent: int = 10
    errors: int = 5

    def applies(self, lines: int, errors: int) -> bool:
        """Decide with integers only, so that Spark gets the same result."""
        return errors >= self.errors and errors * 100 >= self.percent * lines

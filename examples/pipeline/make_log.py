"""Generate an access log: `python -m examples.pipeline.make_log FILE --lines 100000`.

The same arguments give the same log. As in a server's own log, a line is written when its request ends and
has the time when it began, so lines are slightly out of order. Traffic rises and falls, and most requests
succeed. There are two outages with many 5xx responses. A few lines are truncated, as after a full disk.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Final

from examples.pipeline.lines import log_line

BEGIN: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATEST_SECONDS: Final = 30.0
"""Maximum age of a line compared with its neighbours, in seconds: the longest duration of a request."""

_USUAL_SECONDS: Final = 0.8
_OUTAGES: Final = ((0.40, 0.45), (0.78, 0.80))
_CUT_OFF: Final = 1 / 20_000
_WAVE: Final = 0.5
_AT_ONCE: Final = 10_000

_PATHS: Final = (
    "/", "/index.html", "/cart", "/login", "/search", "/api/orders", "/static/app.js", "/static/logo.png",
)  # fmt: skip
_AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15",
    "curl/8.14.1",
)
_STATUSES: Final = (200, 304, 302, 404, 403, 500, 503)
_WELL: Final = tuple(accumulate((880, 60, 20, 30, 6, 3, 1)))
_OUTAGE: Final = tuple(accumulate((500, 30, 10, 30, 6, 124, 300)))


def log_lines(count: int, hours: float = 2.0, seed: int = 1) -> Iterator[str]:
    """Yield the lines of a log that spans `hours`."""
    chance = random.Random(seed)
    span = timedelta(hours=hours)
    addresses = [".".join(str(chance.randint(1, 254)) for _ in range(4)) for _ in range(5_000)]
    for first in range(0, count, _AT_ONCE):
        here = min(_AT_ONCE, count - first)
        begun = zip(
            range(first, first + here),
            chance.choices(addresses, k=here),
            chance.choices(_PATHS, k=here),
            chance.choices(_AGENTS, k=here),
            strict=True,
        )
        for number, address, path, agent in begun:
            passed = number / count
            # The derivative stays positive: the clock changes its pace, but never runs backwards.
            ended = BEGIN + span * (passed + _WAVE * math.sin(2 * math.pi * passed) / (2 * math.pi))
            took = min(chance.expovariate(1 / _USUAL_SECONDS), LATEST_SECONDS)
            status = chance.choices(_STATUSES, cum_weights=_weights(passed))[0]
            line = log_line(
                ended - timedelta(seconds=took),
                address,
                f"GET {path}?id={number} HTTP/1.1",
                status,
                chance.randrange(50_000),
                agent,
            )
            yield line[: len(address) + 25] if chance.random() < _CUT_OFF else line


def _weights(passed: float) -> Sequence[int]:
    return _OUTAGE if any(begin <= passed < end for begin, end in _OUTAGES) else _WELL


def write_log(path: Path, count: int, hours: float, seed: int = 1) -> None:
    """Write such a log to a file."""
    with path.open("w", encoding="ascii", buffering=1 << 20) as log:
        for line in log_lines(count, hours, seed):
            log.write(line)
            log.write("\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="log to write")
    parser.add_argument("--lines", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--hours", type=float, default=2.0, help="time span; default: %(default)s")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random numbers; default: %(default)s"
    )
    options = parser.parse_args()
    write_log(options.file, options.lines, options.hours, options.seed)


if __name__ == "__main__":
    main()

"""Writes an access log to try with: `make_log.py FILE LINES`. Every line is different."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

PATHS = ("/", "/index.html", "/cart", "/login", "/static/app.js", "/static/logo.png", "/api/orders")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone)", "curl/8.5.0")


def main() -> None:
    path, count = Path(sys.argv[1]), int(sys.argv[2])
    random.seed(1)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with path.open("w") as log:
        for number in range(count):
            moment += timedelta(milliseconds=random.randint(1, 500))
            address = ".".join(str(random.randint(1, 254)) for _ in range(4))
            request = f"GET {random.choice(PATHS)}?id={number} HTTP/1.1"
            status, size = random.choice((200, 200, 200, 304, 404, 500)), random.randint(0, 50_000)
            when = moment.strftime("%d/%b/%Y:%H:%M:%S +0000")
            log.write(f'{address} - - [{when}] "{request}" {status} {size} "-" "{random.choice(AGENTS)}"\n')


main()

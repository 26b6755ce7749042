"""`key=value` lines, in which brokers and name servers exchange settings (java.util.Properties)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..errors import UsageError

_KEY: Final = re.compile(r"[A-Za-z0-9_.\-]+")


def parse_lines(text: str) -> dict[str, str]:
    """Return the values by key. Lines without `=` are skipped.

    Brokers write values as they are (Apache RocketMQ 5.3.3, MixAll.properties2String).
    """
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, separator, value in pairs if separator}


def to_lines(settings: Mapping[str, str]) -> str:
    """Return the lines that set these values. Raises UsageError for a name that is no key.

    Servers read them by the rules of Java, so backslashes and line ends are escaped.
    """
    lines = []
    for key, value in settings.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise UsageError(f"setting {key!r}: a key has only the characters a-z A-Z 0-9 . _ -")
        escaped = str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"{key}={escaped}\n")
    return "".join(lines)

"""The keys that Apache RocketMQ 5.3.3 knows, so that its files are accepted here as they are.

Each daemon carries them as a table of its package: one `type<TAB>key<TAB>default` per line, a `#` line
before the keys of each of Apache's classes. The table is read only when a key comes up that is no setting
of ours, or when the settings are described.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .settings import parse_boolean, parse_integer


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key of Apache's: `kind` is its Java type, `default` the text that Apache starts with."""

    key: str
    kind: str
    default: str
    owner: str

    def problem_with(self, value: str) -> str | None:
        """What is wrong with this text as a value of the key, as a phrase that follows 'must be'."""
        try:
            if self.kind in ("int", "long"):
                parse_integer(value)
            elif self.kind == "boolean":
                parse_boolean(value)
            elif self.kind == "double":
                float(value)
        except ValueError:
            return {"boolean": "true or false", "double": "a number"}.get(self.kind, "a whole number")
        return None


# Read by both daemons: the network settings of Apache's NettyServerConfig, NettyClientConfig and TLS.
NETWORK_TABLE = Path(__file__).with_name("apache_network_settings.tsv")


@functools.cache
def read_known_keys(*tables: Path) -> Mapping[str, KnownKey]:
    """The tables' keys; where two tables have the same key, the first one counts."""
    found: dict[str, KnownKey] = {}
    for table in tables:
        owner = ""
        for line in table.read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                owner = line.lstrip("# ")
            elif line:
                kind, key, default = line.split("\t")
                found.setdefault(key, KnownKey(key, kind, default, owner))
    return found

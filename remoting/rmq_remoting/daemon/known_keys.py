"""The keys of Apache RocketMQ 5.3.3, so that its configuration files are accepted as they are.

Each daemon's package has them as a table: one `type<TAB>key<TAB>default` per line, and a `#` line before the
keys of each of Apache's classes. The table is read only when a key is given that is not a setting here, or
when the settings are described.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .settings import parse_boolean, parse_integer


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key of Apache's: `kind` is its Java type, `default` its default as text."""

    key: str
    kind: str
    default: str
    owner: str

    def problem_with(self, value: str) -> str | None:
        """Return None for a valid value, else the phrase that follows 'must be' in the error."""
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


# Common to both daemons: the network settings of Apache's NettyServerConfig, NettyClientConfig and TLS.
NETWORK_TABLE = Path(__file__).with_name("apache_network_settings.tsv")


@functools.cache
def read_known_keys(*tables: Path) -> Mapping[str, KnownKey]:
    """Return the keys of the tables; of two tables with the same key, the first one wins."""
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

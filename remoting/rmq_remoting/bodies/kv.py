"""Tables of text: broker run-time information, order topic configuration, the name server's settings."""

from __future__ import annotations

from pydantic import Field

from .base import Body


class KVTable(Body):
    """A table of text; as the answer to a registration: order topics, `broker:queues;...` by topic."""

    table: dict[str, str] = Field(default_factory=dict)


class KVConfigSerializeWrapper(Body):
    """All tables of a name server by namespace (its kvConfig.json)."""

    config_table: dict[str, dict[str, str]] = Field(default_factory=dict)

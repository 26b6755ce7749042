"""Tables of text: a broker's runtime information, configuration of order topics, a name server's settings."""

from __future__ import annotations

from pydantic import Field

from .base import Body


class KVTable(Body):
    """A table of text; in the response to a registration, `broker:queues;...` by order topic."""

    table: dict[str, str] = Field(default_factory=dict)


class KVConfigSerializeWrapper(Body):
    """All tables of a name server, by namespace (its kvConfig.json)."""

    config_table: dict[str, dict[str, str]] = Field(default_factory=dict)

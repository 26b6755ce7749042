"""A part of the metadata, which a replica takes over apart from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rmq_remoting.bodies.base import Body

from .master import MetadataError

if TYPE_CHECKING:
    from .master import Master


class Part(Protocol):
    """One part of the metadata."""

    @property
    def name(self) -> str:
        """The name for logs and metrics."""

    @property
    def period_seconds(self) -> float:
        """How often it is taken over."""

    @property
    def is_versioned(self) -> bool:
        """Whether the master's metadata version tells of its changes."""

    async def sync(self, master: Master) -> None:
        """Take it over. Raises RequestError, MetadataError, BodyError, OSError."""

    def master_changed(self) -> None:
        """Forget the answers of the master before."""


def require_member(body: Body, field: str) -> None:
    """Raise MetadataError if the master's answer lacks a table, which is not the same as an empty one."""
    if field not in body.model_fields_set:
        raise MetadataError(f"the answer lacks the member {type(body).model_fields[field].alias}")

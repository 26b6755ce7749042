"""Fields that nearly every request may have beside its own (Apache RocketMQ 5.3.3, RpcRequestHeader).

A field is required here if Apache's header requires it, unless the field has a default there. Apache logs a
missing field and continues with its default, so clients may omit it.
"""

from __future__ import annotations

from pydantic import Field

from .base import Header


class RpcHeader(Header):
    """The destination of a request; the names have two to four letters on the wire.

    `namespaced`: names contain the namespace already. `broker_name`: the broker that a proxy or a static
    topic addresses. `oneway`: no response is expected.
    """

    broker_name: str | None = Field(default=None, alias="bname")
    namespace: str | None = Field(default=None, alias="ns")
    namespaced: bool | None = Field(default=None, alias="nsd")
    oneway: bool | None = Field(default=None, alias="oway")


class TopicHeader(RpcHeader):
    """A request about a topic; with `logical` its queue ids are those of a static topic's mapping."""

    logical: bool | None = Field(default=None, alias="lo")

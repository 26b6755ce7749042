"""What nearly every request may carry beside its own fields (Apache RocketMQ 5.3.3, RpcRequestHeader).

The headers of this package require what Apache's do, unless they have a value of their own for it: Apache
notes a missing field in its log and goes on with that value, so clients get away with leaving it out.
"""

from __future__ import annotations

from pydantic import Field

from .base import Header


class RpcHeader(Header):
    """Names of two letters on the wire: where a request belongs.

    `namespaced` says that names have the namespace in them already; `broker_name` is the broker that a proxy
    (or a static topic) means; `oneway` that no answer is expected.
    """

    broker_name: str | None = Field(default=None, alias="bname")
    namespace: str | None = Field(default=None, alias="ns")
    namespaced: bool | None = Field(default=None, alias="nsd")
    oneway: bool | None = Field(default=None, alias="oway")


class TopicHeader(RpcHeader):
    """A request about a topic; `logical` says that queue ids are those of a static topic's mapping."""

    logical: bool | None = Field(default=None, alias="lo")

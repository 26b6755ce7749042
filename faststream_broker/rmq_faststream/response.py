"""The command of a publication, which passes through middlewares, and a handler's typed response."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from rmq_client import MessageExt

from .options import MessageOptions


class RocketPublishCommand(BatchPublishCommand):
    """A message to publish, or with `publish_batch` several ones. Middlewares may change it.

    The options are those of MessageOptions. `timeout` (seconds) bounds the whole send; None: the producer's
    time-out. `request`: the request that the message replies to.
    """

    def __init__(
        self,
        message: Any,
        /,
        *messages: Any,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        sharding_key: str | None = None,
        delay_level: int = 0,
        delay_seconds: float | timedelta = 0,
        deliver_at: datetime | None = None,
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            message,
            *messages,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.timeout = timeout
        self.tag = tag
        self.keys = keys
        self.sharding_key = sharding_key
        self.delay_level = delay_level
        self.delay_seconds = delay_seconds
        self.deliver_at = deliver_at
        self.request: MessageExt | None = None

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> RocketPublishCommand:
        """Return the command of a handler's result; with `batch`, a list is several messages."""
        if isinstance(cmd, RocketPublishCommand):
            if batch and not cmd.extra_bodies:
                cmd.body, cmd.extra_bodies = cls._parse_bodies(cmd.body, batch=True)
            return cmd
        body, others = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *others,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )


class RocketResponse(Response):
    """A handler's result with options of its message: `return RocketResponse(body, tag="paid")`."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.options = options

    def as_publish_command(self) -> RocketPublishCommand:
        """Return the command for the publishers of the handler."""
        return RocketPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            **self.options,
            _publish_type=PublishType.PUBLISH,
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check only the class of a result, and document any body: a publisher's `schema` says more.

        FastStream builds the AsyncAPI document of results, which fails for a class without a JSON schema.
        """
        return core_schema.json_or_python_schema(
            json_schema=core_schema.any_schema(), python_schema=core_schema.is_instance_schema(cls)
        )

    def get_publish_key(self) -> str | None:
        """Return the sharding key."""
        return self.options.get("sharding_key")

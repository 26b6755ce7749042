"""Checks of a send, and the plan that they result in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

from ..store.api import LARGEST_BATCH
from .client_batch import read_batch
from .kinds import SendKind
from .message_types import check_type, check_types
from .plan import NO_MESSAGES, SendPlan
from .properties import PropertiesEditor, tags_codes_cache, unique_key_of

if TYPE_CHECKING:
    from rmq_remoting.headers.send import SendMessageRequestHeader

    from ..settings.broker import BrokerSettings
    from .routes import Route

# A lookup of a module's name takes half as long as that of an enum's member.
_PLAIN: Final = SendKind.PLAIN
_BATCH: Final = SendKind.BATCH
_UNIT: Final = SendKind.UNIT
# Takes a third of the time of `SendPlan(...)`, which calls a Python function first.
_new_tuple: Final = tuple.__new__


class SendPlanner:
    """Checks sends and plans how to store them."""

    def __init__(self, settings: BrokerSettings, new_unique_key: Callable[[], str]) -> None:
        """`new_unique_key` makes the key of a message whose producer gave it none."""
        self._settings = settings
        self._new_unique_key = new_unique_key
        self.tags_codes = tags_codes_cache()
        self.follow_settings()

    def follow_settings(self) -> None:
        """Use the settings as they are now; to be called after a change."""
        settings = self._settings
        self._editor = PropertiesEditor(
            settings.broker_cluster_name,
            settings.region_id,
            settings.trace_on,
            self._new_unique_key,
            self.tags_codes,
            append_crc=settings.append_properties_crc,
        )

    def plan(self, header: SendMessageRequestHeader, route: Route, body: bytes) -> SendPlan:
        """Check the messages of a send, and return the plan for them.

        Raises CommandError for messages that are not accepted.
        """
        if not 0 < len(body) <= self._settings.max_message_size:
            raise self._illegal_body(len(body))
        kind = route.kind
        if kind is _BATCH or kind is _UNIT:
            return self._plan_batch(header, route, body)
        if route.required_type is not None:
            check_type(route.required_type, route.topic, header.properties)
        editor = self._editor
        properties, unique_key, kind_by_properties, delay_level = editor.of_message(
            header.properties, header.target.reconsume_times
        )
        if kind is _PLAIN and kind_by_properties is _PLAIN:
            tags_code = editor.tags_code(properties)
            return _new_tuple(SendPlan, (kind, properties, unique_key, tags_code, 0, NO_MESSAGES, False))
        if kind is _PLAIN:
            kind = kind_by_properties
        if route.item is not None:
            raise _stored_too_late(route.topic)
        return SendPlan(kind, properties, unique_key, 0, delay_level)

    def _plan_batch(self, header: SendMessageRequestHeader, route: Route, body: bytes) -> SendPlan:
        editor = self._editor
        properties = editor.of_batch(header.properties)
        tags_code = editor.tags_code(properties)
        messages, has_keys = read_batch(body, properties, tags_code, editor)
        if route.required_type is not None:
            check_types(route.required_type, route.topic, messages)
        count = len(messages.bodies)
        if route.kind is _UNIT and count > LARGEST_BATCH:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {count} messages, the limit is {LARGEST_BATCH}: send it in several batches",
            )
        unique_key = unique_key_of(properties) or b""
        return SendPlan(route.kind, properties, unique_key, tags_code, 0, messages, has_keys)

    def _illegal_body(self, size_bytes: int) -> CommandError:
        limit = self._settings.max_message_size
        remark = (
            "the message has no body"
            if size_bytes == 0
            else f"the message's body is {size_bytes} bytes, the limit is {limit} (maxMessageSize)"
        )
        return CommandError(ResponseCode.MESSAGE_ILLEGAL, remark)


def _stored_too_late(topic: str) -> CommandError:
    """Return the refusal of a message that reaches its queue some time after its send."""
    return CommandError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"static topic {topic} takes no delayed, timed or transactional messages: after a remapping they "
        "would be stored in a queue that its consumers have left. Send them to another topic",
    )

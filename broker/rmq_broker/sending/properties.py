"""Edit the properties of messages before they are stored, on their raw bytes.

Apache RocketMQ 5.3.3, SendMessageProcessor and AbstractSendMessageProcessor: POP_CK is dropped, a missing
unique key is added, region, trace switch and cluster are set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache, size_by_key
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError, shown
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import decode_properties, find_property, properties_to_string

from ..delivery.timer_admission import TIMER_PROPERTIES
from ..store.api import CRC_PROPERTY_BYTES, MAX_PROPERTIES_BYTES
from .kinds import SendKind

# Properties that decide about the kind of a send, or that only the broker sets. Most messages have none of
# them. One search for them all takes 0.2 µs, a test with `in` for each of them took 0.6 µs.
_SPECIAL_NAMES: Final = (
    b"DELAY\x01",
    b"TIMER_D",
    b"TRAN_MSG\x01",
    b"POP_CK\x01",
    b"CLUSTER\x01",
    b"__CRC32#\x01",
)
_find_special: Final = re.compile(b"\x02(?:%b)" % b"|".join(_SPECIAL_NAMES)).search
_OTHER_SPECIAL_NAMES: Final = tuple(name for name in _SPECIAL_NAMES if name != b"TRAN_MSG\x01")
_find_other_special: Final = re.compile(b"\x02(?:%b)" % b"|".join(_OTHER_SPECIAL_NAMES)).search
# The broker sets these itself. A message that was consumed and is sent again still has them.
_SET_BY_BROKER: Final = ("MSG_REGION", "TRACE_ON", "CLUSTER", "POP_CK", "__CRC32#")
_PLAIN: Final = SendKind.PLAIN

EditedProperties = tuple[bytes, bytes, SendKind, int]
"""The properties to store, the unique key in them, the kind that they make of the send, the delay level."""

TagsCodes = BoundedCache[bytes, int]


def tags_codes_cache() -> TagsCodes:
    """Return an empty cache of the hashes of tags, by the tags' bytes."""
    return BoundedCache(
        "send_tags_codes",
        max_entries=10_000,
        max_bytes=4 * 1024 * 1024,
        size_of=size_by_key,
        max_entry_bytes=ENTRY_OVERHEAD_BYTES + 255,
    )


class PropertiesEditor:
    """Makes the stored properties of messages from those that their producers sent."""

    def __init__(
        self,
        cluster_name: str,
        region_id: str,
        trace_on: bool,
        new_unique_key: Callable[[], str],
        tags_codes: TagsCodes,
        *,
        append_crc: bool = False,
    ) -> None:
        self._max_bytes = MAX_PROPERTIES_BYTES - (CRC_PROPERTY_BYTES if append_crc else 0)
        self._new_unique_key = new_unique_key
        self._added = properties_to_string(
            {
                "MSG_REGION": region_id,
                "TRACE_ON": "true" if trace_on else "false",
                "CLUSTER": cluster_name,
            }
        ).encode()
        self._tags_codes = tags_codes
        self._cached_tags_code = tags_codes.get

    @property
    def max_bytes(self) -> int:
        """The limit for the stored properties of a message."""
        return self._max_bytes

    def of_message(self, properties: bytes, reconsume_times: int = 0) -> EditedProperties:
        """Edit the properties of a single message.

        The kind is PLAIN, DELAYED, TIMED or HALF; the delay level is 0 unless the kind is DELAYED.
        `reconsume_times`: how often the message has been consumed before. Raises CommandError for properties
        that contradict each other or are too long.
        """
        kind, delay_level = _PLAIN, 0
        if properties.startswith(_SPECIAL_NAMES) or _find_special(properties):
            properties, kind, delay_level = _without_brokers_own(properties, reconsume_times)
        if properties and properties[-1] != 2:
            properties += b"\x02"
        unique_key = unique_key_of(properties)
        if unique_key is None:
            unique_key = self._new_unique_key().encode()
            properties += b"UNIQ_KEY\x01%b\x02" % unique_key
        properties += self._added
        if len(properties) > self._max_bytes:
            raise _too_long(properties, self._max_bytes)
        return properties, unique_key, kind, delay_level

    def of_batch(self, properties: bytes) -> bytes:
        """Edit the properties of a batch, which are appended to those of each of its messages.

        A missing unique key is not added: it would hide the keys that the messages have themselves. A batch
        cannot be delayed; the delay of a single message in it is ignored, as by Apache's broker. Raises
        CommandError.
        """
        if properties.startswith(_SPECIAL_NAMES) or _find_special(properties):
            properties, kind, delay_level = _without_brokers_own(properties)
            if kind is not _PLAIN:
                raise _no_batch(kind, delay_level)
        if properties and properties[-1] != 2:
            properties += b"\x02"
        properties += self._added
        if len(properties) > self._max_bytes:
            raise _too_long(properties, self._max_bytes)
        return properties

    def tags_code(self, properties: bytes) -> int:
        """Return the hash of the tags in stored properties; 0 without tags."""
        _, found, rest = properties.rpartition(_TAGS_INSIDE)
        if not found:
            if not properties.startswith(_TAGS_FIRST):
                return 0
            rest = properties[len(_TAGS_FIRST) :]
        tags = rest.partition(b"\x02")[0] or find_property(properties, b"TAGS")
        if not tags:
            return 0
        code = self._cached_tags_code(tags)
        return self._tags_codes.put(tags, tags_code(tags.decode())) if code is None else code


# `find_property` finds the same values. These two properties are looked up for every message, and one search
# for the mark with its separator takes half the time. An empty value is left to `find_property`: then an
# earlier one counts.
_TAGS_FIRST: Final = b"TAGS\x01"
_TAGS_INSIDE: Final = b"\x02TAGS\x01"
_KEY_FIRST: Final = b"UNIQ_KEY\x01"
_KEY_INSIDE: Final = b"\x02UNIQ_KEY\x01"


def unique_key_of(properties: bytes) -> bytes | None:
    """Return the unique key in properties, or None."""
    _, found, rest = properties.rpartition(_KEY_INSIDE)
    if not found:
        if not properties.startswith(_KEY_FIRST):
            return None
        rest = properties[len(_KEY_FIRST) :]
    return rest.partition(b"\x02")[0] or find_property(properties, b"UNIQ_KEY")


def _without_brokers_own(properties: bytes, reconsume_times: int = 0) -> tuple[bytes, SendKind, int]:
    """Drop the properties that only the broker sets; also return the kind of the send and its delay level.

    Raises CommandError.
    """
    if not (properties.startswith(_OTHER_SPECIAL_NAMES) or _find_other_special(properties)):
        is_half = (find_property(properties, b"TRAN_MSG") or b"").lower() == b"true"
        return properties, SendKind.HALF if is_half else _PLAIN, 0
    fields = decode_properties(properties)
    kind, delay_level = _kind_of(fields, reconsume_times)
    if not any(name in fields for name in _SET_BY_BROKER):
        return properties, kind, delay_level
    for name in _SET_BY_BROKER:
        fields.pop(name, None)
    return properties_to_string(fields).encode(), kind, delay_level


def _kind_of(fields: Mapping[str, str], reconsume_times: int) -> tuple[SendKind, int]:
    """Return the kind that properties make of a single message's send, and the delay level.

    A delay level takes precedence over a delivery time. Raises CommandError.
    """
    delay_level = _delay_level(fields.get("DELAY", "0"))
    timer = next((name for name in TIMER_PROPERTIES if name in fields), None)
    if fields.get("TRAN_MSG", "").lower() == "true":
        # Clients before 4.6.1 leave TRAN_MSG on a message that they send to its group's retry topic.
        is_retry = reconsume_times > 0 and delay_level > 0
        delayed_by = "DELAY" if delay_level > 0 else timer
        if not is_retry and delayed_by is not None:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                "a message that is sent in a transaction cannot be delayed (property "
                f"{delayed_by}={shown(fields[delayed_by])})",
            )
        if not is_retry:
            return SendKind.HALF, 0
    if delay_level > 0:
        return SendKind.DELAYED, delay_level
    return (_PLAIN if timer is None else SendKind.TIMED), 0


def _delay_level(level: str) -> int:
    try:
        return max(0, int(level))
    except ValueError as error:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL, f"property DELAY={shown(level)} is no delay level: a whole number"
        ) from error


def _too_long(properties: bytes, limit: int) -> CommandError:
    return CommandError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the message's properties take {len(properties)} bytes, the limit is {limit}",
    )


def _no_batch(kind: SendKind, delay_level: int) -> CommandError:
    if kind is SendKind.HALF:
        return batch_in_transaction()
    if kind is SendKind.DELAYED:
        remark = f"a batch cannot be delayed (property DELAY={shown(str(delay_level))}): send them one by one"
    else:
        remark = "a batch cannot be sent for a time (properties TIMER_...): send its messages one by one"
    return CommandError(ResponseCode.MESSAGE_ILLEGAL, remark)


def batch_in_transaction() -> CommandError:
    """Return the refusal of a batch whose producer wants to commit it."""
    return CommandError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction")

"""What the broker does to a message's properties before it stores them, on their raw bytes.

Apache RocketMQ 5.3.3, SendMessageProcessor and AbstractSendMessageProcessor: POP_CK is dropped, a missing
unique key is made, region, trace switch and cluster are set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError, shown
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_properties import decode_properties, find_property, properties_to_string

from ..delivery.timer_admission import TIMER_PROPERTIES
from ..store.api import CRC_PROPERTY_BYTES, MAX_PROPERTIES_BYTES

_TAGS_MARK: Final = b"TAGS\x01"
# Properties that send a message to the careful look. One search for them all takes 0.2 µs; asking for each
# with `in` took 0.6 µs.
_CAREFUL_NAMES: Final = (
    b"DELAY\x01",
    b"TIMER_D",
    b"TRAN_MSG\x01",
    b"POP_CK\x01",
    b"CLUSTER\x01",
    b"__CRC32#\x01",
)
_find_careful: Final = re.compile(b"\x02(?:%b)" % b"|".join(_CAREFUL_NAMES)).search
_TRANSACTION_MARK: Final = b"TRAN_MSG\x01"
_find_other_careful: Final = re.compile(
    b"(?:^|\x02)(?:%b)" % b"|".join(name for name in _CAREFUL_NAMES if name != _TRANSACTION_MARK)
).search
# What the broker says itself; a message that was consumed and is sent again brings it along.
_BROKERS_OWN: Final = ("MSG_REGION", "TRACE_ON", "CLUSTER", "POP_CK", "__CRC32#")
# In the place of a delay level: the message waits for the end of its transaction.
IN_TRANSACTION: Final = -1
# The same: it says itself when it is to come.
AT_A_TIME: Final = -2
_MAX_REMEMBERED_TAGS: Final = 10_000
_MAX_REMEMBERED_TAGS_BYTES: Final = 255


class PropertiesEditor:
    """Makes the stored properties of a message out of those that its producer sent."""

    def __init__(
        self,
        cluster_name: str,
        region_id: str,
        trace_on: bool,
        new_unique_key: Callable[[], str],
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
        self._tags_codes: dict[bytes, int] = {}

    @property
    def max_bytes(self) -> int:
        """How long the stored properties of a message may be."""
        return self._max_bytes

    def stored(self, properties: bytes, reconsume_times: int = 0) -> tuple[bytes, bytes, int]:
        """The properties to store, the unique key among them, and the delay level: 0 for no delay.

        The level of a message that is sent in a transaction is IN_TRANSACTION, of one that says when it is to
        come AT_A_TIME. `reconsume_times`: how often the message has been consumed before. Raises CommandError
        for what cannot be honoured, or is too long.
        """
        delay_level = 0
        if properties.startswith(_CAREFUL_NAMES) or _find_careful(properties):
            properties, delay_level = _careful(properties, reconsume_times)
        if properties and properties[-1] != 2:
            properties += b"\x02"
        unique_key = find_property(properties, b"UNIQ_KEY")
        if unique_key is None:
            unique_key = self._new_unique_key().encode()
            properties += b"UNIQ_KEY\x01%b\x02" % unique_key
        properties += self._added
        if len(properties) > self._max_bytes:
            raise _too_long(properties, self._max_bytes)
        return properties, unique_key, delay_level

    def shared(self, properties: bytes) -> bytes:
        """What all messages of a batch get, out of the properties of the batch. Raises CommandError.

        A missing unique key is not made here: it would hide those that the messages have themselves. A batch
        cannot be delayed; a delay that only a message of it has counts for nothing, as in Apache's.
        """
        if properties.startswith(_CAREFUL_NAMES) or _find_careful(properties):
            properties, delay_level = _careful(properties)
            if delay_level > 0:
                raise CommandError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a batch cannot be delayed (property DELAY={shown(str(delay_level))}): send them "
                    "one by one",
                )
            if delay_level == IN_TRANSACTION:
                raise batch_in_transaction()
            if delay_level == AT_A_TIME:
                raise CommandError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    "a batch cannot be sent for a time (properties TIMER_...): send its messages one by one",
                )
        if properties and properties[-1] != 2:
            properties += b"\x02"
        properties += self._added
        if len(properties) > self._max_bytes:
            raise _too_long(properties, self._max_bytes)
        return properties

    def tags_code(self, properties: bytes) -> int:
        """The hash of the message's tags; 0 without tags."""
        if _TAGS_MARK not in properties:
            return 0
        tags = find_property(properties, b"TAGS")
        if not tags:
            return 0
        code = self._tags_codes.get(tags)
        if code is None:
            code = tags_code(tags.decode())
            if len(tags) <= _MAX_REMEMBERED_TAGS_BYTES:
                if len(self._tags_codes) >= _MAX_REMEMBERED_TAGS:
                    self._tags_codes.clear()
                self._tags_codes[tags] = code
        return code


def _careful(properties: bytes, reconsume_times: int = 0) -> tuple[bytes, int]:
    """The properties without what the broker says itself, and the delay level, IN_TRANSACTION or AT_A_TIME.

    Raises CommandError.
    """
    if not _find_other_careful(properties):
        is_in_transaction = (find_property(properties, b"TRAN_MSG") or b"").lower() == b"true"
        return properties, IN_TRANSACTION if is_in_transaction else 0
    fields = decode_properties(properties)
    delay_level = _delay_level(fields.get("DELAY", "0"))
    timer = next((name for name in TIMER_PROPERTIES if name in fields), None)
    if timer is not None and delay_level <= 0:  # otherwise the level counts
        delay_level = AT_A_TIME
    # Clients before 4.6.1 leave that on a message that they send to come again.
    comes_again = reconsume_times > 0 and delay_level > 0
    if fields.get("TRAN_MSG", "").lower() == "true" and not comes_again:
        if delay_level != 0:
            name: str = "DELAY" if timer is None or delay_level > 0 else timer
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                "a message that is sent in a transaction cannot be delayed (property "
                f"{name}={shown(fields[name])})",
            )
        delay_level = IN_TRANSACTION
    if not any(name in fields for name in _BROKERS_OWN):
        return properties, delay_level
    for name in _BROKERS_OWN:
        fields.pop(name, None)
    return properties_to_string(fields).encode(), delay_level


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


def batch_in_transaction() -> CommandError:
    """The refusal of a batch whose producer wants to commit it."""
    return CommandError(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction")

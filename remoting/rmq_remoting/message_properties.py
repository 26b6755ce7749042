"""Properties of messages: their names, and their format in requests and in the store.

`name 0x01 value 0x02 name 0x01 value 0x02 ...`, in UTF-8. Decoding follows Apache RocketMQ 5.3.3,
MessageDecoder.string2messageProperties, exactly:

- A segment between two 0x02 is a property if there is at least one character before and one after its first
  0x01. Any other segment is skipped.
- Of a repeated name the last value wins.
- The last 0x02 may be missing.
- Malformed UTF-8 is read as U+FFFD, and a lone surrogate is written as `?`, as in Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .message_errors import InvalidPropertyError, MessageEncodeError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "

# The length of the properties is a signed 16 bit integer in every format that holds them.
MAX_PROPERTIES_BYTES: Final = 0x7FFF

# Names and values of Apache RocketMQ 5.3.3, MessageConst.
PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_BUYER_ID: Final = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSFER_FLAG: Final = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG: Final = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG: Final = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: Final = "UNIQ_KEY"
PROPERTY_EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIMESTAMP: Final = "CONSUME_START_TIME"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL: Final = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME: Final = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
PROPERTY_POP_CK: Final = "POP_CK"
PROPERTY_POP_CK_OFFSET: Final = "POP_CK_OFFSET"
PROPERTY_FIRST_POP_TIME: Final = "1ST_POP_TIME"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
PROPERTY_REDIRECT: Final = "REDIRECT"
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_BORN_HOST: Final = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
# Properties whose names begin with this are part of a request only: a broker does not store them.
PROPERTY_TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
PROPERTY_TRANSIENT_TOPIC_CONFIG: Final = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
PROPERTY_TRANSIENT_GROUP_CONFIG: Final = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_CRC32: Final = "__CRC32#"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

# Names that no user property may have (Apache RocketMQ 5.3.3, MessageConst.STRING_HASH_SET).
RESERVED_NAMES: Final = frozenset(
    {
        PROPERTY_TRACE_SWITCH,
        PROPERTY_MSG_REGION,
        PROPERTY_KEYS,
        PROPERTY_TAGS,
        PROPERTY_WAIT_STORE_MSG_OK,
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_RETRY_TOPIC,
        PROPERTY_REAL_TOPIC,
        PROPERTY_REAL_QUEUE_ID,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_PRODUCER_GROUP,
        PROPERTY_MIN_OFFSET,
        PROPERTY_MAX_OFFSET,
        PROPERTY_BUYER_ID,
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_TRANSFER_FLAG,
        PROPERTY_CORRECTION_FLAG,
        PROPERTY_MQ2_FLAG,
        PROPERTY_RECONSUME_TIME,
        PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
        PROPERTY_MAX_RECONSUME_TIMES,
        PROPERTY_CONSUME_START_TIMESTAMP,
        PROPERTY_POP_CK,
        PROPERTY_POP_CK_OFFSET,
        PROPERTY_FIRST_POP_TIME,
        PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        DUP_INFO,
        PROPERTY_EXTEND_UNIQ_INFO,
        PROPERTY_INSTANCE_ID,
        PROPERTY_CORRELATION_ID,
        PROPERTY_MESSAGE_REPLY_TO_CLIENT,
        PROPERTY_MESSAGE_TTL,
        PROPERTY_REPLY_MESSAGE_ARRIVE_TIME,
        PROPERTY_PUSH_REPLY_TIME,
        PROPERTY_CLUSTER,
        PROPERTY_MESSAGE_TYPE,
        PROPERTY_INNER_MULTI_QUEUE_OFFSET,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TIMER_ENQUEUE_MS,
        PROPERTY_TIMER_DEQUEUE_MS,
        PROPERTY_TIMER_ROLL_TIMES,
        PROPERTY_TIMER_OUT_MS,
        PROPERTY_TIMER_DEL_UNIQKEY,
        PROPERTY_TIMER_DELAY_LEVEL,
        PROPERTY_BORN_HOST,
        PROPERTY_BORN_TIMESTAMP,
        PROPERTY_DLQ_ORIGIN_TOPIC,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        PROPERTY_CRC32,
    }
)


def properties_to_string(properties: Mapping[str, str | None]) -> str:
    """Encode the properties as one string, in the mapping's order; those whose value is None are omitted.

    Nothing is checked: a property that does not fit the format (see `check_property`) is lost or truncated
    when it is read.
    """
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None])


def properties_from_string(text: str) -> dict[str, str]:
    """Decode the properties in `text`, in its order. Never fails: a malformed segment is skipped."""
    properties: dict[str, str] = {}
    for segment in text.split(PROPERTY_SEPARATOR):
        name, _, value = segment.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """Encode `properties_to_string` in UTF-8. Raises MessageEncodeError above 32767 bytes."""
    raw = properties_to_string(properties).encode("utf-8", "replace")
    if len(raw) > MAX_PROPERTIES_BYTES:
        raise MessageEncodeError(
            f"the properties take {len(raw)} bytes, the limit is {MAX_PROPERTIES_BYTES}: "
            "move large values into the body"
        )
    return raw


def decode_properties(raw: bytes) -> dict[str, str]:
    """Decode the properties in `raw`, in its order. Never fails: a malformed segment is skipped."""
    return properties_from_string(raw.decode("utf-8", "replace"))


def find_property(raw: bytes, name: bytes) -> bytes | None:
    """Return the value of one property, the same as in `decode_properties(raw)`, without decoding the others.

    `name` is not empty and contains neither separator.
    """
    return find_value(raw, name + b"\x01")


def find_value(raw: bytes, prefix: bytes) -> bytes | None:
    """Return the value of the property whose name, with the separator behind it, is `prefix`."""
    start = raw.rfind(prefix)
    while start >= 0:
        if start == 0 or raw[start - 1] == 2:
            value_start = start + len(prefix)
            value_end = raw.find(b"\x02", value_start)
            value = raw[value_start:value_end] if value_end >= 0 else raw[value_start:]
            if value:
                return value
        start = raw.rfind(prefix, 0, start)
    return None


def check_property(name: object, value: object) -> None:
    """Check that a property would be read back as it is. Raises InvalidPropertyError."""
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidPropertyError(f"property {name!r}: name and value must be texts, the value is {value!r}")
    if not name or not value:
        raise InvalidPropertyError(f"property {name!r}: an empty name or value is dropped when it is read")
    if NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name or PROPERTY_SEPARATOR in value:
        raise InvalidPropertyError(
            f"property {name!r}: the characters \\x01 (in names) and \\x02 separate properties"
        )


def check_user_property(name: object, value: object) -> None:
    """Check a property of the user: `check_property`, and no reserved name. Raises InvalidPropertyError."""
    check_property(name, value)
    if name in RESERVED_NAMES:
        raise InvalidPropertyError(
            f"property {name!r} is used by RocketMQ itself: choose another name, "
            "or use the argument or attribute of Message for it"
        )

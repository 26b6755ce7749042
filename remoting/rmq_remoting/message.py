"""Messages: a producer sends a `Message`, a consumer receives a `MessageExt`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from .message_errors import InvalidPropertyError, MessageEncodeError
from .message_ids import offset_message_id
from .message_properties import (
    KEY_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_POP_CK,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    PROPERTY_WAIT_STORE_MSG_OK,
    RESERVED_NAMES,
    check_property,
    check_user_property,
    decode_properties,
)
from .socket_addresses import HostPort

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(slots=True, init=False, repr=False)
class Message:
    """A message to send: `Message("orders", b"...", tags="paid", keys=["4711"], properties={"shop": "7"})`.

    `properties` holds all metadata, including that of RocketMQ itself (tags, keys, delay ...); the attributes
    below are views of it. `flag` is 32 bits for the application.
    """

    topic: str
    body: bytes = b""
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        delay_seconds: float | timedelta = 0,
        deliver_at: datetime | None = None,
    ) -> None:
        """`properties` are the user's own; the last three arguments schedule a later delivery, one of them.

        `delay_seconds` and `deliver_at`, a time with a time zone, count in whole milliseconds. Raises
        InvalidPropertyError for a property that cannot be stored and for two delivery times, and
        MessageEncodeError for an argument of the wrong type, as a body that is a text.
        """
        if type(topic) is not str:
            _require_type("topic", topic, str)
        if type(flag) is not int:
            _require_type("flag", flag, int)
        self.topic = topic
        self.body = body if type(body) is bytes else _body_bytes(body)
        self.flag = flag
        self.properties = {}
        if tags:
            if type(tags) is not str:
                _require_type("tags", tags, str)
            self.tags = tags
        if keys:
            self.keys = keys
        if delay_level:
            self.delay_level = delay_level
        if delay_seconds or deliver_at is not None:
            if bool(delay_level) + bool(delay_seconds) + (deliver_at is not None) > 1:
                raise InvalidPropertyError(
                    f"delay_level={delay_level}, delay_seconds={delay_seconds}, deliver_at={deliver_at}: a "
                    "message has one delivery time, set one of them"
                )
            self.delay_seconds = delay_seconds
            self.deliver_at = deliver_at
        if properties:
            _require_type("properties", properties, Mapping)
            for name, value in properties.items():
                check_user_property(name, value)
            self.properties.update(properties)

    @property
    def tags(self) -> str | None:
        """The tag, by which consumers filter; one per message."""
        return self.properties.get(PROPERTY_TAGS)

    @tags.setter
    def tags(self, tags: str | None) -> None:
        self._set(PROPERTY_TAGS, tags)

    @property
    def keys(self) -> list[str]:
        """The keys by which the message can be queried; set to a list, or to a text of keys and spaces."""
        return [key for key in self.properties.get(PROPERTY_KEYS, "").split(KEY_SEPARATOR) if key]

    @keys.setter
    def keys(self, keys: str | Iterable[str]) -> None:
        if not isinstance(keys, str):
            _require_type("keys", keys, Iterable)
            keys = list(keys)
            for key in keys:
                if not isinstance(key, str) or not key or KEY_SEPARATOR in key:
                    raise InvalidPropertyError(f"key {key!r}: a key is a str, not empty, and holds no space")
            keys = KEY_SEPARATOR.join(keys)
        self._set(PROPERTY_KEYS, keys)

    @property
    def delay_level(self) -> int:
        """The delay level (1 is the shortest), 0 for none."""
        return self._int(PROPERTY_DELAY_TIME_LEVEL)

    @delay_level.setter
    def delay_level(self, level: int) -> None:
        if type(level) is not int or level < 0:
            raise InvalidPropertyError(f"delay_level is {level!r}: it must be a whole number, 0 for none")
        self._set(PROPERTY_DELAY_TIME_LEVEL, str(level) if level else None)

    @property
    def delay_seconds(self) -> float:
        """Delay of the delivery in seconds, 0 for none; set to a number or a timedelta."""
        return self._int(PROPERTY_TIMER_DELAY_MS) / 1000

    @delay_seconds.setter
    def delay_seconds(self, delay: float | timedelta) -> None:
        delay_ms = _delay_ms(delay)
        self._set(PROPERTY_TIMER_DELAY_MS, str(delay_ms) if delay_ms else None)

    @property
    def deliver_at(self) -> datetime | None:
        """Time of the delivery (UTC), None for at once; set to a datetime with a time zone."""
        time_ms = self._int(PROPERTY_TIMER_DELIVER_MS)
        try:
            return _EPOCH + time_ms * _MILLISECOND if time_ms else None
        except OverflowError:  # written by another program
            return None

    @deliver_at.setter
    def deliver_at(self, time: datetime | None) -> None:
        self._set(PROPERTY_TIMER_DELIVER_MS, None if time is None else str(_time_ms(time)))

    @property
    def sharding_key(self) -> str | None:
        """The sharding key: messages with the same one go to one queue."""
        return self.properties.get(PROPERTY_SHARDING_KEY)

    @sharding_key.setter
    def sharding_key(self, sharding_key: str | None) -> None:
        self._set(PROPERTY_SHARDING_KEY, sharding_key)

    @property
    def wait_store_ok(self) -> bool:
        """Whether the broker answers only after the flush and the replication that it is configured for."""
        return self.properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"

    @wait_store_ok.setter
    def wait_store_ok(self, wait: bool) -> None:
        # A missing property means True.
        self._set(PROPERTY_WAIT_STORE_MSG_OK, None if wait else "false")

    @property
    def unique_key(self) -> str | None:
        """The id that the sending client generated."""
        return self.properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)

    @unique_key.setter
    def unique_key(self, key: str | None) -> None:
        self._set(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, key)

    @property
    def user_properties(self) -> dict[str, str]:
        """A copy of the properties without those that RocketMQ uses itself."""
        return {name: value for name, value in self.properties.items() if name not in RESERVED_NAMES}

    def put_user_property(self, name: str, value: str) -> None:
        """Set one property. Raises InvalidPropertyError if its name is reserved or it cannot be stored."""
        check_user_property(name, value)
        self.properties[name] = value

    def _set(self, name: str, value: str | None) -> None:
        if value:
            check_property(name, value)
            self.properties[name] = value
        else:
            self.properties.pop(name, None)

    def _int(self, name: str) -> int:
        """Return a property as a number; 0 if it is missing or, written by another program, not a number."""
        try:
            return int(self.properties.get(name, "0"))
        except ValueError:
            return 0

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, body=<{len(self.body)} bytes>, flag={self.flag}, "
            f"properties={self.properties!r})"
        )


class _EncodedProperties(Message):
    """A message whose properties may still be encoded.

    Decoding them took a fifth of the time that a consumer spends on a message, and many listeners read the
    body only. `properties` is unset until the first access, which `__getattr__` answers: Python calls it for
    attributes that are not set. Once they are, an access costs nothing more.
    """

    __slots__ = ("_raw_properties",)
    _raw_properties: bytes

    if not TYPE_CHECKING:  # mypy would take it for the type of any attribute

        def __getattr__(self, name: str) -> dict[str, str]:
            if name != "properties":
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            properties = self.properties = decode_properties(self._raw_properties)
            return properties


@dataclass(slots=True, repr=False)
class MessageExt(_EncodedProperties):
    """A message as a broker stored it.

    Sizes are in bytes, timestamps in milliseconds since 1970 UTC; hosts are (IP address, port). `body` is
    the producer's, decompressed. `body_crc` (31 bits) is of the stored, perhaps compressed, body. `version`
    is 1, or 2 for a record whose topic may be longer than 127 bytes. `broker_name` is not stored: the puller
    sets it.
    """

    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: HostPort = ("0.0.0.0", 0)
    store_timestamp: int = 0
    store_host: HostPort = ("0.0.0.0", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    store_size: int = 0
    body_crc: int = 0
    version: int = 1
    broker_name: str = ""

    @property
    def msg_id(self) -> str:
        """The id that the sending client generated, or else the offset message id."""
        return self.properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or self.offset_msg_id

    @property
    def receipt_handle(self) -> str | None:
        """The handle with which a popped message is acknowledged; None for a pulled message."""
        return self.properties.get(PROPERTY_POP_CK)

    @property
    def delivery_attempt(self) -> int:
        """Number of deliveries to the group, including this one."""
        return self.reconsume_times + 1

    @property
    def offset_msg_id(self) -> str:
        """The offset message id: the broker's address and the message's offset in the commit log."""
        return offset_message_id(self.store_host, self.physical_offset)

    def __repr__(self) -> str:
        return (
            f"MessageExt(topic={self.topic!r}, broker_name={self.broker_name!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, msg_id={self.msg_id!r}, body=<{len(self.body)} bytes>, "
            f"reconsume_times={self.reconsume_times}, properties={self.properties!r})"
        )


def leave_properties_encoded(message: MessageExt, raw: bytes) -> None:
    """Replace the properties by these bytes, which are decoded at the first access."""
    message._raw_properties = raw
    del message.properties


def _delay_ms(delay: float | timedelta) -> int:
    """Return a delay in whole milliseconds. Raises InvalidPropertyError."""
    if isinstance(delay, timedelta):
        milliseconds = delay / _MILLISECOND
    elif isinstance(delay, bool) or not isinstance(delay, (int, float)):
        raise InvalidPropertyError(
            f"delay_seconds is {delay!r}: it must be a number of seconds or a timedelta, 0 for none"
        )
    else:
        milliseconds = delay * 1000
    if not 0 <= milliseconds < float("inf"):
        raise InvalidPropertyError(f"delay_seconds is {delay!r}: it must be at least 0")
    return max(1, round(milliseconds)) if milliseconds else 0


def _time_ms(time: datetime) -> int:
    """Return a time in milliseconds since 1970 UTC. Raises InvalidPropertyError."""
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise InvalidPropertyError(
            f"deliver_at is {time!r}: it must be a datetime with a time zone, for example "
            "datetime.now(timezone.utc) + timedelta(hours=1)"
        )
    time_ms = (time - _EPOCH) // _MILLISECOND
    if time_ms <= 0:
        raise InvalidPropertyError(f"deliver_at is {time}: it must be after the beginning of 1970")
    return time_ms


def _require_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise MessageEncodeError(
            f"{name} of a message must be of type {kind.__name__}, not {type(value).__name__}: {value!r}"
        )


def _body_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise MessageEncodeError(
        f"the body must be bytes, not {type(body).__name__}: encode texts with .encode()"
    )

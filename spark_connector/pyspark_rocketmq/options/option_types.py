"""Types of options: how their texts are parsed, and the description of allowed values."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

from rmq_client import UsageError
from rmq_client.names import check_group, check_topic, check_topic_to_send
from rmq_client.settings import name_server_list
from rmq_client.tls import Verification
from rmq_remoting.client import split_address
from rmq_remoting.command import Serialization
from rmq_remoting.compression import CompressionType
from rmq_remoting.errors import ConnectError

from ..errors import BadOffsets, shortened
from ..offsets import EARLIEST, LATEST, MAX_QUEUE_ID, QueueKey, QueueOffsets, by_broker, by_queue, parse_json
from .parsing import OptionType
from .positions import Anchor, AtOffsets, AtTimes

OWN_ADDRESS: Final = "auto"
NO_REPORTS: Final = "off"
"""Values of the option `lossReports` other than an address."""

_WRITE_ID: Final = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_DURATION: Final = re.compile(r"([0-9]{1,15})\s*([a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_GROUP_PREFIX: Final = 120
_MAX_LONG: Final = 2**63 - 1
_MAX_DURATION_MS: Final = 2**31 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIMESTAMP_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)

_BY_QUEUE: Final = "{topic: {broker: {queue: %s}}}"


def whole_number(least: int, most: int = _MAX_LONG, unit: str = "") -> OptionType:
    """Return the type of whole numbers between bounds."""

    def parse(text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text):
            raise ValueError
        number = int(text)
        if not least <= number <= most:
            raise ValueError
        return number

    return OptionType(parse, f"a whole number from {least} to {most}", unit)


def choice(values: Mapping[str, object]) -> OptionType:
    """Return the type of case-insensitive words, with the value that each stands for."""
    by_text = {text.lower(): value for text, value in values.items()}

    def parse(text: str) -> object:
        if text.lower() not in by_text:
            raise ValueError
        return by_text[text.lower()]

    return OptionType(parse, "one of " + ", ".join(values))


def _boolean(text: str) -> bool:
    # Java's parseBoolean parses every other text as false; a typo must not disable anything.
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ValueError
    duration_ms = int(match[1]) * _UNITS_MS[match[2]]
    if not 1 <= duration_ms <= _MAX_DURATION_MS:
        raise ValueError(f"{duration_ms} ms")
    return duration_ms


def timestamp_ms(text: str) -> int:
    """Parse a time to ms since 1970 UTC. Raises ValueError."""
    if _WHOLE_NUMBER.fullmatch(text):
        at_ms = int(text)
    else:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError("it has no time zone: driver, workers and brokers may have different ones")
        at_ms = (time - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= at_ms <= _MAX_TIMESTAMP_MS:
        raise ValueError("before 1970 or after the year 9999")
    return at_ms


def _timestamp_leaf(leaf: object) -> int:
    if type(leaf) is not int and not isinstance(leaf, str):
        raise ValueError(f"{shortened(repr(leaf))} is not a time")
    return timestamp_ms(str(leaf))


def _checked(check: Callable[[str], None]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        try:
            check(text)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return text

    return parse


def _group_prefix(text: str) -> str:
    if len(text) > _MAX_GROUP_PREFIX:
        raise ValueError(f"it has {len(text)} characters")
    return _checked(check_group)(text)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ValueError("no topic")
    for topic in topics:
        _checked(check_topic)(topic)
    return topics


def _pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise ValueError("no pattern")
    try:
        # Python warns of nested sets, whose meaning may change in a later version.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error


def _queues(text: str) -> tuple[QueueKey, ...]:
    found: dict[QueueKey, None] = {}
    for topic, broker, ids in by_broker(parse_json(text)):
        _checked(check_topic)(topic)
        if not isinstance(ids, list) or not ids:
            raise BadOffsets(f"at {topic}/{broker}: {shortened(repr(ids))} is not a list of queue numbers")
        for number in ids:
            if type(number) is not int or not 0 <= number <= MAX_QUEUE_ID:
                raise BadOffsets(f"at {topic}/{broker}: {shortened(repr(number))} is not a queue number")
            key = QueueKey(topic, broker, number)
            if key in found:
                raise BadOffsets(f"{key} is listed twice")
            found[key] = None
    if not found:
        raise ValueError("no queue")
    return tuple(sorted(found))


def _of_known_topics(numbers: Mapping[QueueKey, int]) -> QueueOffsets:
    if not numbers:
        raise ValueError("no queue")
    for topic in {key.topic for key in numbers}:
        _checked(check_topic)(topic)
    return QueueOffsets(numbers)


def position(anchors: Collection[Anchor], least: int, placeholders: str) -> OptionType:
    """Return the type of positions: an anchor, or an offset for each queue.

    `least`: the lowest placeholder allowed. `placeholders`: their description."""

    def parse(text: str) -> Anchor | AtOffsets:
        if text.startswith("{"):
            return AtOffsets(_of_known_topics(QueueOffsets.from_json(text, least=least)))
        if text.lower() not in anchors:
            raise ValueError
        return Anchor(text.lower())

    return OptionType(parse, f"{', '.join(anchors)}, or JSON {_BY_QUEUE % 'offset'}, {placeholders}")


def _times(text: str) -> AtTimes:
    return AtTimes(_of_known_topics(by_queue(parse_json(text), _timestamp_leaf)))


def _write_id(text: str) -> str:
    if not _WRITE_ID.fullmatch(text):
        raise ValueError
    return text


def _some_text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _key(text: str) -> str:
    # The error has no text: it could repeat the key.
    if not text or not text.isprintable():
        raise ValueError
    return text


def _name_servers(text: str) -> str:
    try:
        return ";".join(name_server_list(text))
    except UsageError as error:
        raise ValueError(str(error)) from error


def _report_address(text: str) -> str:
    if text.lower() in (OWN_ADDRESS, NO_REPORTS):
        return text.lower()
    try:
        split_address(text)
    except ConnectError as error:
        raise ValueError(str(error)) from error
    return text


_TOPIC_NAME: Final = "a topic name: up to 127 of the characters a-z A-Z 0-9 _ - % |"
_GROUP_NAME: Final = "a group name: up to 255 of the characters a-z A-Z 0-9 _ - % |"
_A_TIME: Final = "milliseconds since 1970 UTC or ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z"
_GROUP: Final = OptionType(_checked(check_group), _GROUP_NAME)
_TIME: Final = OptionType(timestamp_ms, _A_TIME)
_TIMES: Final = OptionType(_times, f"JSON {_BY_QUEUE % 'time'}, where a time is {_A_TIME}")
_COUNT: Final = whole_number(1)

LossReportsOption = Annotated[str, OptionType(_report_address, "auto, off, or host:port of the driver")]
Flag = Annotated[bool, OptionType(_boolean, "true or false")]
MaybeCount = Annotated[int | None, _COUNT]
DurationMs = Annotated[
    int,
    OptionType(
        _duration_ms,
        f"a duration such as 500ms, 30s, 15m, 2h, or a number of ms, from 1 to {_MAX_DURATION_MS}",
    ),
]
MaybeWriteId = Annotated[
    str | None, OptionType(_write_id, "1 to 200 of the characters a-z A-Z 0-9 . _ : / -")
]
MaybeText = Annotated[str | None, OptionType(_some_text, "a non-empty text")]
MaybeKey = Annotated[str | None, OptionType(_key, "a non-empty text of printable characters")]
VerificationOption = Annotated[
    Verification, choice({"full": "full", "certificate": "certificate", "none": "none"})
]
NameServers = Annotated[str, OptionType(_name_servers, "name server addresses, host:port;host:port")]
GroupName = Annotated[str, _GROUP]
MaybeGroupName = Annotated[str | None, _GROUP]
MaybeGroupPrefix = Annotated[
    str | None, OptionType(_group_prefix, "the beginning of a group name: up to 120 characters of it")
]
MaybeTopicToSend = Annotated[
    str | None, OptionType(_checked(check_topic_to_send), f"{_TOPIC_NAME}, except system topics")
]
MaybeTopics = Annotated[
    tuple[str, ...] | None, OptionType(_topics, f"topics, separated by commas; each is {_TOPIC_NAME}")
]
MaybePattern = Annotated[
    re.Pattern[str] | None,
    OptionType(_pattern, "a Python regular expression for whole topic names"),
]
MaybeQueues = Annotated[
    tuple[QueueKey, ...] | None,
    OptionType(_queues, "JSON {topic: {broker: [queue, queue]}}, at least one queue"),
]
MaybeStart = Annotated[
    Anchor | AtOffsets | None, position(list(Anchor), EARLIEST, "-2 for earliest, -1 for latest")
]
MaybeEnd = Annotated[
    Anchor | AtOffsets | None, position([Anchor.LATEST, Anchor.GROUP], LATEST, "-1 for latest")
]
MaybeTimestampMs = Annotated[int | None, _TIME]
MaybeTimes = Annotated[AtTimes | None, _TIMES]
TimestampStrategy: TypeAlias = Literal["latest", "error"]
TimestampStrategyOption = Annotated[TimestampStrategy, choice({"latest": "latest", "error": "error"})]
RetiredQueues: TypeAlias = Literal["auto", "fail"]
RetiredQueuesOption = Annotated[RetiredQueues, choice({"auto": "auto", "fail": "fail"})]
PropertiesMode: TypeAlias = Literal["map", "raw", "none"]
ColumnsPreset: TypeAlias = Literal["all", "lean"]
ColumnsPresetOption = Annotated[ColumnsPreset, choice({"all": "all", "lean": "lean"})]
PropertiesModeOption = Annotated[PropertiesMode, choice({"map": "map", "raw": "raw", "none": "none"})]
ExpressionType: TypeAlias = Literal["TAG", "SQL92"]
ExpressionTypeOption = Annotated[ExpressionType, choice({"TAG": "TAG", "SQL92": "SQL92"})]
MaybeCompression = Annotated[
    CompressionType | None,
    choice(
        {
            "none": None,
            "zlib": CompressionType.ZLIB,
            "lz4": CompressionType.LZ4,
            "zstd": CompressionType.ZSTD,
        }
    ),
]
SerializationOption = Annotated[
    Serialization, choice({"ROCKETMQ": Serialization.BINARY, "JSON": Serialization.JSON})
]

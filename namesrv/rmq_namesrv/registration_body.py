"""Decoding of a broker's registration in pieces: 10,000 topics are 2 MB of JSON.

orjson would block the loop with those for 5 ms. The table of topics is therefore cut into pieces of 64 KiB,
which are decoded one by one. Routes need four numbers of each topic; the rest of its configuration is dropped
at once.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any, Final

import orjson

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.fastjson import JsonLimits
from rmq_remoting.bodies.register import (
    VERSION_WITH_MAPPINGS,
    RegisterBrokerBody,
    RegistrationPieces,
)
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.bodies.topic import (
    DEFAULT_QUEUE_NUMS,
    PERM_READ_WRITE,
    DataVersion,
    TopicConfig,
)
from rmq_remoting.errors import BodyError, shown

from .routes import QueueNumbers
from .slices import Steps

PIECE_BYTES: Final = 64 * 1024
_CHECKSUM_PIECE_BYTES: Final = 256 * 1024
_MAX_ATTEMPTS: Final = 4
# A broker has some thousands of topics. Without a bound a frame could hold two million of them.
MAX_TOPICS: Final = 200_000
# Decoded as a whole: the mappings of static topics, and bodies in another layout than Apache's.
_LIMITS: Final = JsonLimits(values=500_000, dialect_values=50_000)
_PAUSE_EVERY: Final = 256  # topics

# Apache's member names; its brokers write the table of topics without white space.
_WRAPPER: Final = "topicConfigSerializeWrapper"
_TABLE: Final = "topicConfigTable"
_TABLE_BEGIN: Final = b'"topicConfigTable":{'
# The end of a member of the table before the next one, and the end of the last member before that of the
# table.
_BETWEEN: Final = re.compile(rb'\},(?="[^"\\]*+":\{)')
_END: Final = re.compile(rb"\}(?=\})")


@dataclass(frozen=True, slots=True)
class RegisteredTopics:
    """The topics in a broker's registration."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, QueueNumbers] = field(default_factory=dict)
    mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)


def checksum_and_fingerprint(body: bytes) -> Steps[tuple[int, bytes]]:
    """Compute the checksum for comparison with the header, and a hash to recognize an unchanged body.

    CRC-32 without its highest bit (Apache RocketMQ 5.3.3, UtilAll.crc32).
    """
    checksum, fingerprint = 0, sha1(usedforsecurity=False)
    view = memoryview(body)
    for start in range(0, len(body), _CHECKSUM_PIECE_BYTES):
        piece = view[start : start + _CHECKSUM_PIECE_BYTES]
        checksum = zlib.crc32(piece, checksum)
        fingerprint.update(piece)
        yield
    return checksum & 0x7FFFFFFF, fingerprint.digest()


def read_registration(body: bytes) -> Steps[RegisteredTopics]:
    """Decode a registration that is not compressed. Raises BodyError."""
    if not body:
        return RegisteredTopics()
    if len(body) > PIECE_BYTES:
        topics = _Topics()
        rest = yield from _read_table(body, topics)
        if rest is not None:
            return _registered(rest, topics.numbers)
    # A small body, or one in another layout than Apache's, is decoded as a whole.
    members = fastjson.loads(body, _LIMITS)
    topics = _Topics()
    wrapper = members.get(_WRAPPER) if isinstance(members, dict) else None
    if isinstance(wrapper, dict):
        yield
        yield from topics.add_all(wrapper.pop(_TABLE, None) or {})
    return _registered(members, topics.numbers)


def read_compressed(stream: bytes, broker_version: int) -> Steps[RegisteredTopics]:
    """Decode the stream of a compressed registration, after `inflate_registration`. Raises BodyError."""
    pieces = RegistrationPieces(stream)
    data_version = DataVersion.decode_request(pieces.next("data version"))
    topics = _Topics()
    for number in range(pieces.count("topics")):
        topics.add_line(pieces.next_text("topic"))
        if number % _PAUSE_EVERY == 0:
            yield
    pieces.next("filter servers")
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if broker_version >= VERSION_WITH_MAPPINGS:
        for _ in range(pieces.count("mappings")):
            mapping = TopicQueueMappingInfo.decode_request(pieces.next("mapping"))
            mappings[mapping.topic or ""] = mapping
            yield
    return RegisteredTopics(data_version, topics.numbers, mappings)


def _registered(members: object, topics: Mapping[str, QueueNumbers]) -> RegisteredTopics:
    wrapper = RegisterBrokerBody.from_wire(members).topic_config_serialize_wrapper
    return RegisteredTopics(wrapper.data_version, topics, wrapper.topic_queue_mapping_info_map)


def _read_table(body: bytes, topics: _Topics) -> Steps[object | None]:
    """Decode the table of topics in pieces, then the members around it; return None if that fails.

    A piece is decoded as the inside of an object, which succeeds if and only if the piece is whole.
    """
    begin = body.find(_TABLE_BEGIN)
    position = begin + len(_TABLE_BEGIN)
    if begin < 0 or body.find(_TABLE_BEGIN, position) >= 0:
        return None
    while len(body) - position > PIECE_BYTES:
        piece = _first_whole(body, position, _BETWEEN, position + PIECE_BYTES)
        if piece is None:
            break  # near the end of the table, or not a table in Apache's layout
        members, position = piece
        position += 1
        if not (yield from topics.add_all(members, stop_at_reference=True)):
            return None
    piece = _first_whole(body, position, _END, position)
    if piece is None:
        return None
    members, position = piece
    if not (yield from topics.add_all(members, stop_at_reference=True)):
        return None
    try:
        return fastjson.loads(body[: begin + len(_TABLE_BEGIN)] + body[position:], _LIMITS)
    except BodyError:
        return None  # probably a reference into the table


def _first_whole(
    body: bytes, start: int, boundary: re.Pattern[bytes], search_from: int
) -> tuple[dict[str, Any], int] | None:
    """Return the members from `start` to the first boundary at which they are whole, and their end."""
    for attempt, match in enumerate(boundary.finditer(body, search_from)):
        if attempt == _MAX_ATTEMPTS:
            return None
        end = match.start() + 1
        try:
            return orjson.loads(b"{" + body[start:end] + b"}"), end
        except orjson.JSONDecodeError:
            continue  # a boundary inside a member
    return None


class _Topics:
    """Collects the numbers of each topic; equal ones share one object."""

    def __init__(self) -> None:
        self.numbers: dict[str, QueueNumbers] = {}
        self._known: dict[QueueNumbers, QueueNumbers] = {}
        self._known_lines: dict[tuple[str, ...], QueueNumbers] = {}

    def add_all(self, members: object, *, stop_at_reference: bool = False) -> Steps[bool]:
        """Add a piece of the table; return False at a topic that is a reference."""
        if not isinstance(members, dict):
            raise BodyError(f"RegisterBrokerBody: {_TABLE} must be an object")
        known: Mapping[Any, QueueNumbers] = self._known
        numbers = self.numbers
        for count, (name, config) in enumerate(members.items(), 1):
            try:
                get = config.get
                key = (
                    get("perm", PERM_READ_WRITE),
                    get("readQueueNums", DEFAULT_QUEUE_NUMS),
                    get("writeQueueNums", DEFAULT_QUEUE_NUMS),
                    get("topicSysFlag", 0),
                )
                topic = get("topicName", name)
                if type(topic) is not str:
                    raise TypeError(topic)
                numbers[topic] = known[key]
            except (AttributeError, TypeError, KeyError):
                if stop_at_reference and isinstance(config, dict) and "$ref" in config:
                    return False
                self._add_unknown(name, config)
            if count % _PAUSE_EVERY == 0:
                yield
        self._check_count()
        yield
        return True

    def add_line(self, line: str) -> None:
        """Add a topic of a compressed registration (`TopicConfig.to_line`). Raises BodyError."""
        name, *numbers = line.split(" ", 4)[:4]  # without filter type and attributes
        key = tuple(numbers)
        if len(key) < 3:
            raise BodyError(f"TopicConfig: a line needs a name and three numbers, got {shown(line)}")
        known = self._known_lines.get(key)
        if known is None:
            names = ("readQueueNums", "writeQueueNums", "perm")
            known = _numbers_of(
                TopicConfig.from_wire({"topicName": name, **dict(zip(names, key, strict=True))})
            )
            known = self._known_lines[key] = self._known.setdefault(known, known)
        self.numbers[name] = known
        self._check_count()

    def _check_count(self) -> None:
        if len(self.numbers) > MAX_TOPICS:
            raise BodyError(f"RegisterBrokerBody: more than {MAX_TOPICS} topics")

    def _add_unknown(self, name: object, config: object) -> None:
        """Add a topic with numbers that are new, or in another spelling."""
        if isinstance(config, dict):
            config = {"topicName": name, **config}
        typed = TopicConfig.from_wire(config)
        numbers = _numbers_of(typed)
        self.numbers[typed.topic_name] = self._known.setdefault(numbers, numbers)


def _numbers_of(config: TopicConfig) -> QueueNumbers:
    return QueueNumbers(config.perm, config.read_queue_nums, config.write_queue_nums, config.topic_sys_flag)

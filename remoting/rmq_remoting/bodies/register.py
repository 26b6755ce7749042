"""The body of a broker's registration with a name server: JSON, or a compressed stream of pieces."""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, Self

from pydantic import Field

from ..errors import BodyError
from . import fastjson
from .base import Body
from .static_topic import TopicConfigAndMappingSerializeWrapper, TopicQueueMappingInfo
from .topic import TopicConfig

# V5_0_0 in Apache's MQVersion: since this version a compressed registration ends with mappings.
VERSION_WITH_MAPPINGS: Final = 413

# 100,000 topics take about 6 MiB; compressed they are far below the frame limit.
MAX_INFLATED_BYTES: Final = 16 * 1024 * 1024

_LENGTH: Final = Struct(">i")


class RegisterBrokerBody(Body):
    """All topics of a broker. `filter_server_list` belongs to a feature that no longer exists."""

    filter_server_list: list[str] = Field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = Field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )

    def encode_compressed(self) -> bytes:
        """Encode the body of a registration whose header has `compressed=true`.

        A zlib stream of: data version (JSON), number of topics, each topic (`TopicConfig.to_line`), filter
        servers (JSON), number of mappings, each mapping (JSON). Each piece follows its length; all numbers
        are int32 (Apache RocketMQ 5.3.3, RegisterBrokerBody.encode).
        """
        wrapper = self.topic_config_serialize_wrapper
        pieces = [_piece(wrapper.data_version.encode()), _LENGTH.pack(len(wrapper.topic_config_table))]
        pieces += [_piece(config.to_line().encode()) for config in wrapper.topic_config_table.values()]
        pieces.append(_piece(fastjson.dumps(self.filter_server_list)))
        mappings = wrapper.topic_queue_mapping_info_map
        pieces.append(_LENGTH.pack(len(mappings)))
        pieces += [_piece(mapping.encode()) for mapping in mappings.values()]
        return zlib.compress(b"".join(pieces), zlib.Z_BEST_COMPRESSION)

    @classmethod
    def decode_compressed(cls, data: bytes, broker_version: int = VERSION_WITH_MAPPINGS) -> Self:
        """Decode such a body of a broker with that version (its MQVersion ordinal). Raises BodyError."""
        pieces = RegistrationPieces(inflate_registration(data))
        wrapper: dict[str, object] = {"dataVersion": fastjson.loads(pieces.next("data version"))}
        wrapper["topicConfigTable"] = topics = {}
        for _ in range(pieces.count("topics")):
            topic = TopicConfig.members_of_line(pieces.next_text("topic"))
            topics[topic["topicName"]] = topic
        filter_servers = fastjson.loads(pieces.next("filter servers"))
        if broker_version >= VERSION_WITH_MAPPINGS:
            mappings = [
                TopicQueueMappingInfo.decode(pieces.next("mapping")) for _ in range(pieces.count("mappings"))
            ]
            wrapper["topicQueueMappingInfoMap"] = {mapping.topic or "": mapping for mapping in mappings}
        return cls.from_wire({"filterServerList": filter_servers, "topicConfigSerializeWrapper": wrapper})


def _piece(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def inflate_registration(data: bytes) -> bytes:
    """Return the stream of a compressed registration. Raises BodyError, also for one over 16 MiB."""
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, MAX_INFLATED_BYTES)
    except zlib.error as error:
        raise BodyError(f"RegisterBrokerBody: not a zlib stream: {error}") from error
    if inflater.unconsumed_tail:
        raise BodyError(f"RegisterBrokerBody: more than {MAX_INFLATED_BYTES} bytes after decompression")
    if not inflater.eof:
        raise BodyError("RegisterBrokerBody: the compressed stream is truncated")
    return inflated


class RegistrationPieces:
    """Cuts such a stream into its pieces; each method raises BodyError where the stream is damaged."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self, items: str) -> int:
        """Return the next number, how many `items` follow."""
        if self._position + _LENGTH.size > len(self._data):
            raise BodyError(f"RegisterBrokerBody: the stream ends before the number of {items}")
        (number,) = _LENGTH.unpack_from(self._data, self._position)
        if number < 0:
            raise BodyError(f"RegisterBrokerBody: {number} is not a possible number of {items}")
        self._position += _LENGTH.size
        return int(number)

    def next(self, piece: str) -> bytes:
        """Return the next piece; `piece` says in errors what it is."""
        end = self.count(f"bytes of the {piece}") + self._position
        if end > len(self._data):
            raise BodyError(f"RegisterBrokerBody: the stream ends inside the {piece}")
        content = self._data[self._position : end]
        self._position = end
        return content

    def next_text(self, piece: str) -> str:
        """Return the next piece, which is text."""
        try:
            return self.next(piece).decode()
        except UnicodeDecodeError as error:
            raise BodyError(f"RegisterBrokerBody: the {piece} is not UTF-8 text") from error

"""Frames of sends and their answers: the hot path.

Sends to one queue differ only in the opaque, the time, the properties and the body. All other fields are
encoded once per queue, so that a frame is a join of prepared pieces. `SendHeaderDecoder` in rmq_remoting is
the counterpart, which recognizes the same pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from struct import Struct
from typing import Final

from rmq_remoting.codes import FLAG_ONEWAY, VERSION_5_3_3, LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import HeaderError
from rmq_remoting.ext_fields import decode_binary, encode_binary
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader, SendTarget
from rmq_remoting.message_properties import PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH
from rmq_remoting.message_queue import MessageQueue

from ..errors import BrokerError, broker_error
from ..results import SendStatus

# Frame length, header length and serialization, code, language, version, opaque, flag, remark length,
# length of the ext fields.
_HEAD: Final = Struct(">iIhbhiiii")
_BINARY_MARK: Final = Serialization.BINARY << 24
_FIXED_HEADER_LENGTH: Final = 21
_BORN_KEY: Final = b"\x00\x01g\x00\x00\x00\x0d"
_BORN_LENGTH: Final = 13
_PROPERTIES_KEY: Final = b"\x00\x01i"
_PYTHON: Final = int(LanguageCode.PYTHON)
# Region of a broker that names none (MixAll.DEFAULT_TRACE_REGION_ID).
_DEFAULT_REGION: Final = "DefaultRegion"

# The pieces before the time, between time and properties, and the length of all but the properties.
_Pieces = tuple[bytes, bytes, int]


@dataclass(slots=True)
class Outgoing:
    """One encoded send, without its queue; `reply`: it answers a request."""

    body: bytes
    properties: bytes
    sys_flag: int = 0
    flag: int = 0
    batch: bool = False
    reply: bool = False


class QueueEndpoint:
    """Address of one queue's broker, and the prepared pieces of sends to the queue."""

    __slots__ = ("_pieces", "_plain", "_serialization", "_target", "address", "broker_name", "queue")

    def __init__(
        self, queue: MessageQueue, address: str, target: SendTarget, serialization: Serialization
    ) -> None:
        self.queue = queue
        self.broker_name = target.broker_name or queue.broker_name
        self.address = address
        self._target = target
        self._serialization = serialization
        self._pieces: dict[tuple[int, int, bool], _Pieces] = {}
        self._plain = self._prepare(0, 0, False)

    def frame(self, opaque: int, born_ms: int, outgoing: Outgoing, oneway: bool = False) -> bytes:
        """Return the frame of a send (code 310, batch 320, reply 325).

        `born_ms`: milliseconds since 1970 UTC.
        """
        if self._serialization is not Serialization.BINARY:
            return self._json_frame(opaque, born_ms, outgoing, oneway)
        code = 310
        if outgoing.sys_flag or outgoing.flag or outgoing.batch or outgoing.reply:
            key = (outgoing.sys_flag, outgoing.flag, outgoing.batch)
            pieces = self._pieces.get(key)
            if pieces is None:
                pieces = self._prepare(*key)
            if outgoing.batch:
                code = 320
            elif outgoing.reply:
                code = 325
        else:
            pieces = self._plain
        before, between, length = pieces
        properties, body = outgoing.properties, outgoing.body
        ext_length = length + len(properties)
        header_length = _FIXED_HEADER_LENGTH + ext_length
        return b"".join(
            (
                _HEAD.pack(
                    4 + header_length + len(body),
                    _BINARY_MARK | header_length,
                    code,
                    _PYTHON,
                    VERSION_5_3_3,
                    opaque,
                    FLAG_ONEWAY if oneway else 0,
                    0,
                    ext_length,
                ),
                before,
                b"%d" % born_ms,
                between,
                len(properties).to_bytes(4, "big"),
                properties,
                body,
            )
        )

    def _prepare(self, sys_flag: int, flag: int, batch: bool) -> _Pieces:
        target = replace(self._target, sys_flag=sys_flag, flag=flag, batch=batch)
        fields = SendMessageRequestHeader(target, 0, b"").encode_v2()
        del fields["g"]
        before = encode_binary({key: fields.pop(key) for key in ("a", "b", "c", "d", "e", "f")}) + _BORN_KEY
        between = encode_binary(fields) + _PROPERTIES_KEY
        pieces = (before, between, len(before) + _BORN_LENGTH + len(between) + 4)
        # Applications choose the flag: the number of prepared pieces must not grow with it.
        if len(self._pieces) < 64:
            self._pieces[sys_flag, flag, batch] = pieces
        return pieces

    def _json_frame(self, opaque: int, born_ms: int, outgoing: Outgoing, oneway: bool) -> bytes:
        target = replace(self._target, sys_flag=outgoing.sys_flag, flag=outgoing.flag, batch=outgoing.batch)
        header = SendMessageRequestHeader(target, born_ms, outgoing.properties)
        code = RequestCode.SEND_MESSAGE_V2
        if outgoing.batch:
            code = RequestCode.SEND_BATCH_MESSAGE
        elif outgoing.reply:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        command = RemotingCommand(
            code,
            FLAG_ONEWAY if oneway else 0,
            opaque,
            ext_fields=header.encode_v2(),
            body=outgoing.body,
            serialization=self._serialization,
        )
        return encode_frame(command)


_STATUSES: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
_status_of: Final[Callable[[int], SendStatus | None]] = _STATUSES.get

_RECALL_HANDLE: Final = b"recallHandle"
_MSG_ID_KEY: Final = b"\x00\x05msgId\x00\x00\x00"
_QUEUE_ID_KEY: Final = b"\x00\x07queueId\x00\x00\x00"
_QUEUE_OFFSET_KEY: Final = b"\x00\x0bqueueOffset\x00\x00\x00"


def traced_region(said: Mapping[str, str]) -> str | None:
    """Return the region of a broker that accepts traces, from the fields of an answer or a message; else
    None.

    (Apache RocketMQ 5.3.3, MQClientAPIImpl.)
    """
    if said.get(PROPERTY_TRACE_SWITCH) == "false":
        return None
    return said.get(PROPERTY_MSG_REGION) or _DEFAULT_REGION


@lru_cache(maxsize=64)
def _region_in(rest: bytes) -> str | None:
    """Return the region in the fields behind the position, which are the same in most answers of a broker."""
    return traced_region(decode_binary(rest))


@dataclass(slots=True)
class Stored:
    """A broker's answer to a send: position and durability of the message.

    `offset_msg_ids` is one id, or those of a batch separated by commas. `answer` is the whole answer.
    `rest_start` is the index of its other fields in `raw_ext`, 0 if that is not known.
    """

    status: SendStatus
    offset_msg_ids: str
    queue_id: int
    queue_offset: int
    answer: RemotingCommand | None = field(default=None, compare=False, repr=False)
    rest_start: int = field(default=0, compare=False, repr=False)

    @property
    def traced_region(self) -> str | None:
        """The broker's region, None if it accepts no traces."""
        answer = self.answer
        if answer is None:
            return None
        raw = answer.raw_ext
        if raw is None or not self.rest_start:
            return traced_region(answer.ext_fields)
        return _region_in(raw[self.rest_start :])

    @property
    def recall_handle(self) -> str | None:
        """Handle of a delayed message for a recall, None for other messages."""
        if self.answer is None:
            return None
        raw = self.answer.raw_ext
        if raw is not None and _RECALL_HANDLE not in raw:  # true of most answers, which need no decoding then
            return None
        return self.answer.ext_fields.get("recallHandle")


def queue_of(endpoint: QueueEndpoint, stored: Stored) -> MessageQueue:
    """Return the queue of a stored message: brokers may choose another one than requested."""
    queue = endpoint.queue
    if stored.queue_id == queue.queue_id:
        return queue
    return MessageQueue(queue.topic, queue.broker_name, stored.queue_id)


def decode_send_response(response: RemotingCommand, endpoint: QueueEndpoint) -> Stored:
    """Decode the answer to a send. Raises BrokerError for a refusal, and for an unreadable answer."""
    status = _status_of(response.code)
    if status is None:
        raise broker_error(
            response.code, response.remark, endpoint.address, f"send to {_text(endpoint.queue)}"
        )
    raw = response.raw_ext
    if raw is not None and raw.startswith(_MSG_ID_KEY):
        # The order in which rmq's broker writes the fields; each length fits its last byte.
        id_end = 11 + raw[10]
        queue_start = id_end + 13
        if raw.startswith(_QUEUE_ID_KEY, id_end):
            queue_end = queue_start + raw[queue_start - 1]
            offset_start = queue_end + 17
            if raw.startswith(_QUEUE_OFFSET_KEY, queue_end):
                offset_end = offset_start + raw[offset_start - 1]
                try:
                    return Stored(
                        status,
                        raw[11:id_end].decode("ascii"),
                        int(raw[queue_start:queue_end]),
                        int(raw[offset_start:offset_end]),
                        response,
                        offset_end,
                    )
                except ValueError:
                    pass  # the general decoder below reports the error
    try:
        header = SendMessageResponseHeader.decode(response.ext_fields)
    except HeaderError as error:
        raise BrokerError(
            response.code, f"unreadable answer: {error}", endpoint.address, f"send to {_text(endpoint.queue)}"
        ) from error
    return Stored(status, header.msg_id, header.queue_id, header.queue_offset, response)


def _text(queue: MessageQueue) -> str:
    return f"{queue.topic} ({queue.broker_name}:{queue.queue_id})"

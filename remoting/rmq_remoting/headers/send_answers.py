"""Answers to sends, joined from prepared parts."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

import orjson

from ..codes import FLAG_RESPONSE, VERSION_5_3_3, LanguageCode, ResponseCode
from ..command import RemotingCommand, Serialization
from .prepared import JSON_HEAD, JSON_TAIL, json_frame

# The constant parts of a binary response: code, language and version before the opaque, flag and no remark
# after it.
_RESPONSE_HEAD: Final = Struct(">hbhiii").pack(
    ResponseCode.SUCCESS, LanguageCode.PYTHON, VERSION_5_3_3, 0, FLAG_RESPONSE, 0
)
_HEAD_BEFORE_OPAQUE: Final = _RESPONSE_HEAD[:5]
_HEAD_AFTER_OPAQUE: Final = _RESPONSE_HEAD[9:]
_EMPTY_EXT_HEADER_LENGTH: Final = len(_RESPONSE_HEAD) + 4
# The lengths of frame and header, the head around the opaque, the ext fields' length, the message id's name
# and length.
_pack_until_msg_id = Struct(f">iI5si{len(_HEAD_AFTER_OPAQUE)}si7si").pack
_pack_int32 = Struct(">i").pack
# Bytes of the message id and the queue offset besides their values and the offset's name.
_MSG_ID_AND_OFFSET_BYTES: Final = 15
_NO_FIELDS: Final[Mapping[str, str]] = {}
_BINARY: Final = Serialization.BINARY


def _ext(name: str, value: str) -> bytes:
    name_bytes, value_bytes = name.encode(), value.encode()
    return b"%b%b%b%b" % (
        len(name_bytes).to_bytes(2, "big"),
        name_bytes,
        len(value_bytes).to_bytes(4, "big"),
        value_bytes,
    )


class SendResponseEncoder:
    """Encodes the answers to sends; region and trace switch are the same in all of them."""

    def __init__(self, region_id: str, trace_on: bool) -> None:
        self._constant_fields = {"MSG_REGION": region_id, "TRACE_ON": "true" if trace_on else "false"}
        self._constant_ext = b"".join(_ext(name, value) for name, value in self._constant_fields.items())
        self._constant_json = orjson.dumps(self._constant_fields)[1:-1]
        self._by_queue: dict[int, bytes] = {}

    @property
    def constant_fields(self) -> dict[str, str]:
        """The ext fields of every answer to a send, refusals included."""
        return self._constant_fields

    def encode(
        self,
        request: RemotingCommand,
        msg_id: bytes,
        queue_id: int,
        queue_offset: int,
        transaction_id: bytes = b"",
        further_fields: Mapping[str, str] = _NO_FIELDS,
    ) -> bytes:
        """Encode the answer to a send that was stored: a frame in the request's serialization.

        `msg_id` is the offset message id in ASCII, or those of a batch separated by commas. `transaction_id`
        is the message's unique key, in UTF-8.
        """
        if request.serialization is not _BINARY:
            return self._encode_json(
                request.opaque, msg_id, queue_id, queue_offset, transaction_id, further_fields
            )
        middle = self._by_queue.get(queue_id)
        if middle is None:
            middle = self._by_queue[queue_id] = _ext("queueId", str(queue_id)) + b"\x00\x0bqueueOffset"
        offset = b"%d" % queue_offset
        last = self._constant_ext
        if further_fields:
            last += b"".join(_ext(name, value) for name, value in further_fields.items())
        ext_length = len(msg_id) + len(middle) + len(offset) + len(last) + _MSG_ID_AND_OFFSET_BYTES
        transaction_head = b""
        if transaction_id:
            transaction_head = b"\x00\x0dtransactionId" + _pack_int32(len(transaction_id))
            ext_length += len(transaction_head) + len(transaction_id)
        header_length = _EMPTY_EXT_HEADER_LENGTH + ext_length
        return b"".join(
            (
                _pack_until_msg_id(
                    header_length + 4,
                    0x01000000 | header_length,
                    _HEAD_BEFORE_OPAQUE,
                    request.opaque,
                    _HEAD_AFTER_OPAQUE,
                    ext_length,
                    b"\x00\x05msgId",
                    len(msg_id),
                ),
                msg_id,
                middle,
                _pack_int32(len(offset)),
                offset,
                transaction_head,
                transaction_id,
                last,
            )
        )

    def _encode_json(
        self,
        opaque: int,
        msg_id: bytes,
        queue_id: int,
        queue_offset: int,
        transaction_id: bytes,
        further_fields: Mapping[str, str],
    ) -> bytes:
        transaction = b""
        if transaction_id.isalnum():
            transaction = b'"transactionId":"%b",' % transaction_id
        elif transaction_id:
            transaction = b'"transactionId":%b,' % orjson.dumps(transaction_id.decode())
        last = self._constant_json
        if further_fields:
            last += b"," + orjson.dumps(dict(further_fields))[1:-1]
        return json_frame(
            b'%b"msgId":"%b","queueId":"%d","queueOffset":"%d",%b%b%b'
            % (JSON_HEAD, msg_id, queue_id, queue_offset, transaction, last, JSON_TAIL % opaque)
        )

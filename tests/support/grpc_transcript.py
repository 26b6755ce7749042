"""Answers of a gRPC proxy as JSON that does not change between runs: what differs each time is a star.

A transcript maps names of requests to answers. `tests/data/grpc_answers` has those of Apache's proxy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToDict

from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.service import NAME

ANY: Final = "*"
Answer = dict[str, Any]
Transcript = dict[str, Answer]

DEADLINE_SECONDS: Final = 20.0
# Fields whose values no two runs share.
_VARYING: Final = frozenset(
    {
        "receipt_handle",
        "transaction_id",
        "recall_handle",
        "born_timestamp",
        "store_timestamp",
        "delivery_timestamp",
        "invisible_duration",
        "born_host",
        "store_host",
        "port",
        "offset",
        "queue_offset",
    }
)
# A message id that a server has made, with its address, process and time.
_MADE_ID: Final = re.compile("[0-9A-F]{40,}")
_STREAMS: Final = frozenset({"ReceiveMessage", "PullMessage"})


class Recorder:
    """Sends requests, and keeps the answers by name."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.transcript: Transcript = {}
        self._streams: list[Any] = []

    async def ask(
        self,
        name: str,
        method: str,
        request: Any,
        *,
        client: str = "client",
        headers: Sequence[tuple[str, str]] = (),
        deadline: float = DEADLINE_SECONDS,
    ) -> list[Any]:
        """Send a request; keep its answer under `name`, and return the responses, none after an error.

        `client`: the client's id, none if empty. `headers` replace those of the same name.
        """
        responses: list[Any] = []
        answer: Answer = {}
        kind = getattr(rpc, f"{method}Response")
        arity = self._channel.unary_stream if method in _STREAMS else self._channel.unary_unary
        call = arity(
            f"/{NAME}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=kind.FromString,
        )(request, timeout=deadline, metadata=_metadata(client, headers))
        try:
            if method in _STREAMS:
                async for response in call:
                    responses.append(response)
                answer = {"responses": [_plain(response) for response in responses]}
            else:
                responses = [await call]
                answer = _plain(responses[0])
        except grpc.aio.AioRpcError as error:
            answer = {"grpc": error.code().name, "details": error.details()}
        self._keep(name, answer)
        return responses

    async def report(self, name: str, settings: pb.Settings, *, client: str = "client") -> None:
        """Report a client's settings on a stream of its own, which stays open; keep the answer."""
        stream = self._channel.stream_stream(
            f"/{NAME}/Telemetry",
            request_serializer=rpc.TelemetryCommand.SerializeToString,
            response_deserializer=rpc.TelemetryCommand.FromString,
        )(metadata=_metadata(client, ()))
        self._streams.append(stream)
        try:
            await stream.write(rpc.TelemetryCommand(settings=settings))
            response = await stream.read()
            answer = {"end": True} if response is grpc.aio.EOF else _plain(response)
        except grpc.aio.AioRpcError as error:
            answer = {"grpc": error.code().name, "details": error.details()}
        self._keep(name, answer)

    def close(self) -> None:
        """End the telemetry streams."""
        for stream in self._streams:
            stream.cancel()

    def _keep(self, name: str, answer: Answer) -> None:
        assert name not in self.transcript, f"two requests are called {name!r}"
        self.transcript[name] = answer


def status_codes(answer: Answer) -> object:
    """Return the codes of an answer: its status, and those of its entries or responses."""
    if "grpc" in answer:
        return answer["grpc"]
    parts = answer.get("responses", [answer])
    return [
        (part.get("status", {}).get("code"), [entry["status"]["code"] for entry in part.get("entries", ())])
        for part in parts
        if "status" in part
    ]


def _metadata(client: str, headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    metadata = {"x-mq-language": "JAVA", "x-mq-client-version": "5.2.0", **dict(headers)}
    if client:
        metadata["x-mq-client-id"] = client
    return [(key, value) for key, value in metadata.items() if value]


def _plain(message: Any) -> Answer:
    plain: Answer = _starred(MessageToDict(message, preserving_proto_field_name=True))
    for name in ("message_queues", "assignments"):
        if name in plain:
            plain[name] = sorted(plain[name], key=repr)
    return plain


def _starred(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: ANY if key in _VARYING else _starred(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_starred(member) for member in value]
    return ANY if isinstance(value, str) and _MADE_ID.fullmatch(value) else value

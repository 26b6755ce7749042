"""The load that replays frames, against a server that answers without looking."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.frame_replay import Refused, replay
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import FrameDecoder, encode_frame
from tests.support.broker_requests import send

_FRAMES = b"".join(encode_frame(send("T", b"body", queue_id=number)) for number in range(3))


@contextmanager
def _server(code: int) -> Iterator[int]:
    """A server that answers every request with a code; its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            decoder = FrameDecoder()
            while data := self.request.recv(65_536):
                answers = [_answer(request, code) for request in decoder.feed(data)]
                self.request.sendall(b"".join(answers))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def _answer(request: RemotingCommand, code: int) -> bytes:
    return encode_frame(request.response(code, "a remark"))


def test_answers_are_counted_by_port() -> None:
    with _server(ResponseCode.SUCCESS) as first, _server(ResponseCode.SUCCESS) as second:
        result = replay(_FRAMES, 0.05, 2, [first, second])

    answers = result["answers"]
    assert isinstance(answers, list) and len(answers) == 2
    assert all(count >= 3 for count in answers)
    assert isinstance(result["cpu_seconds"], float) and result["cpu_seconds"] > 0


def test_a_refusal_ends_the_load() -> None:
    with _server(ResponseCode.SYSTEM_BUSY) as port, pytest.raises(Refused, match="a request was refused"):
        replay(_FRAMES, 5.0, 1, [port])

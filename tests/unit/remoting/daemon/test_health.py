"""`rmq-health` against a listener that answers as the test orders."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon import health
from rmq_remoting.framing import FrameDecoder, encode_frame
from tests.support.ports import LOOPBACK, free_port

_Answer = Callable[[RemotingCommand], bytes | None]


@contextmanager
def _daemon(answer: _Answer) -> Iterator[str]:
    """Listens for one connection and one request; None as the answer: says nothing until asked no more."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                decoder, requests = FrameDecoder(), list[RemotingCommand]()
                while not requests:
                    requests = decoder.feed(connection.recv(65536))
                reply = answer(requests[0])
                if reply is None:
                    connection.recv(1)
                else:
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"
        thread.join()


def _success(request: RemotingCommand) -> bytes:
    return encode_frame(request.response(ResponseCode.SUCCESS, body=b"{}"))


@pytest.mark.parametrize(
    ("role", "code"),
    [
        ("broker", RequestCode.GET_BROKER_RUNTIME_INFO),
        ("namesrv", RequestCode.GET_BROKER_CLUSTER_INFO),
        ("proxy-remoting", RequestCode.CHECK_CLIENT_CONFIG),
    ],
)
def test_each_daemon_is_asked_what_it_knows(
    role: str, code: RequestCode, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def answer(request: RemotingCommand) -> bytes:
        asked.append(request.code)
        return _success(request)

    with _daemon(answer) as address:
        assert health.main([role, address]) == 0
    assert asked == [code]
    assert capsys.readouterr().out == f"the {role} at {address} answers\n"


def test_a_daemon_that_serves_known_users_only_is_alive() -> None:
    def refuse(request: RemotingCommand) -> bytes:
        return encode_frame(request.response(ResponseCode.NO_PERMISSION, "username cannot be null"))

    with _daemon(refuse) as address:
        assert health.main(["namesrv", address]) == 0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda request: encode_frame(request.response(1, "still starting")), "code 1: still starting"),
        (lambda request: b"", "closed without a response"),
        (lambda request: b"HTTP/1.1 400 Bad Request\r\n\r\n", "not of the RocketMQ protocol"),
        (lambda request: None, "timed out"),
    ],
)
def test_anything_but_a_good_answer_is_unhealthy(
    answer: _Answer, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with _daemon(answer) as address:
        assert health.main(["broker", address, "--timeout", "0.2"]) == 1
    assert said in capsys.readouterr().err


def test_an_answer_to_another_question_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request: RemotingCommand) -> bytes:
        request.opaque += 1
        return _success(request)

    with _daemon(answer) as address:
        assert health.main(["broker", address]) == 1
    assert "belongs to another request" in capsys.readouterr().err


def test_nobody_there_is_unhealthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(["broker", f"{LOOPBACK}:{free_port()}"]) == 1
    assert "refused" in capsys.readouterr().err


@pytest.mark.parametrize("listens", ["broker", "namesrv", None])
def test_without_a_role_it_asks_who_listens(
    listens: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        for name, role in list(health.ROLES.items()):
            port = listener.getsockname()[1] if name == listens else free_port()
            monkeypatch.setitem(health.ROLES, name, health.Role(name, port, role.request))
        if listens is None:
            assert health.main([]) == 1
            assert "nothing listens on" in capsys.readouterr().err
        else:
            assert health._listening().name == listens


@pytest.mark.parametrize("address", ["10911", "host:", "host:port", "host:0", "host:65536", ":10911"])
def test_a_bad_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        health.main(["broker", address])
    assert ended.value.code == 2
    assert "HOST:PORT expected" in capsys.readouterr().err

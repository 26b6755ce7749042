"""Each signed send is served once; its repetitions get the same answer, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rmq_broker.access.replay_window import ReplayWindow
from rmq_broker.access.replays import ReplayProtection
from rmq_client import Credentials
from rmq_remoting.answers import Answer, HeldAnswer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization, next_opaque
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.pending_answer import PendingAnswer
from tests.support.broker_requests import BORN_MS, send
from tests.support.clock import Clock
from tests.support.peers import Peer
from tests.support.signed_requests import signed

_ANNA = Credentials("anna", "annas-secret")
_KEY = {"UNIQ_KEY": "7F0000010001"}


class _Protected:
    """A protected processor that answers as a test says, and counts the sends that reach it."""

    def __init__(self) -> None:
        self.clock = Clock(BORN_MS - 1)
        self.window = ReplayWindow(60_000, self.clock)
        self.clock.now_ms = BORN_MS
        self.replays = ReplayProtection(self.window)
        self.served: list[RemotingCommand] = []
        self.connection = Peer().connection
        self.result: Callable[[RemotingCommand], Result] = _stored
        self._protected = self.replays.protect(self._process)

    def _process(self, connection: Connection, request: RemotingCommand) -> Result:
        self.served.append(request)
        return self.result(request)

    def ask(self, request: RemotingCommand, host: str = "") -> Result:
        if host:
            connection = Peer().connection
            connection.remote_address = (host, 1)
            return self._protected(connection, request)
        return self._protected(self.connection, request)

    def metric(self, name: str) -> object:
        (family,) = [family for family in self.replays.collect() if family.name == name]
        return next(iter(family.series))[1]


def _stored(request: RemotingCommand) -> bytes:
    return encode_frame(request.response(ResponseCode.SUCCESS, ext_fields={"msgId": "ABC"}))


def _send(body: bytes = b"body", **options: object) -> RemotingCommand:
    return signed(send("T", body, **{"properties": _KEY, **options}), _ANNA)  # type: ignore[arg-type]


def _again(request: RemotingCommand) -> RemotingCommand:
    """The same bytes once more; the request number is not signed."""
    (copy,) = FrameDecoder().feed(encode_frame(request))
    copy.opaque = next_opaque()
    return copy


def _decoded(answer: Result) -> RemotingCommand:
    assert not isinstance(answer, asyncio.Future | PendingAnswer)
    if isinstance(answer, bytes):
        (command,) = FrameDecoder().feed(answer)
        return command
    assert answer is not None
    return answer


def _refusal(protected: _Protected, request: RemotingCommand, host: str = "") -> str:
    before = len(protected.served)
    with pytest.raises(CommandError) as refusal:
        protected.ask(request, host)
    assert refusal.value.code == ResponseCode.NO_PERMISSION
    assert len(protected.served) == before
    return refusal.value.remark


@pytest.mark.parametrize("serialization", list(Serialization))
async def test_a_repeated_send_gets_the_first_answer(serialization: Serialization) -> None:
    protected = _Protected()
    request = _send(serialization=serialization)
    first = _decoded(protected.ask(request))
    for _ in range(2):
        repeated = _again(request)
        answer = _decoded(protected.ask(repeated))
        assert (answer.opaque, answer.code) == (repeated.opaque, ResponseCode.SUCCESS)
        assert answer.ext_fields == first.ext_fields == {"msgId": "ABC"}
    assert protected.served == [request]
    assert protected.metric("rmq_access_replays_answered_total") == 2


async def test_a_send_from_another_host_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    protected = _Protected()
    request = _send()
    protected.ask(request)
    assert "recorded and sent again" in _refusal(protected, _again(request), "10.9.9.9")
    _refusal(protected, _again(request), "10.9.9.9")
    assert protected.metric("rmq_access_replays_refused_total") == 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("signed send not served user='anna' code=310 peer=10.9.9.9:1 refused=1 cause=")


async def test_equal_messages_without_unique_keys() -> None:
    """They may be two messages, so the second one is not answered as if it were the first."""
    protected = _Protected()
    protected.ask(_send(properties=b""))
    with pytest.raises(CommandError, match="may be two messages") as busy:
        protected.ask(_send(properties=b""))
    assert (busy.value.code, len(protected.served)) == (ResponseCode.SYSTEM_BUSY, 1)
    assert "came from another host" in _refusal(protected, _send(properties=b""), "10.9.9.9")
    protected.ask(_send(properties=b"", born_ms=BORN_MS + 1))
    batch = _send(b"..UNIQ_KEY\x01..", properties=b"", code=320, batch=True)
    protected.ask(batch)
    assert _decoded(protected.ask(_again(batch))).code == ResponseCode.SUCCESS


async def test_other_names_do_not_make_another_send() -> None:
    """The code is not signed either: a recorded send cannot become a reply."""
    protected = _Protected()
    request = _send()
    protected.ask(request)
    forged = _again(request)
    forged.code = 325
    forged.ext_fields["o"] = forged.ext_fields.pop("m")
    _refusal(protected, forged, "10.9.9.9")


@pytest.mark.parametrize("age_ms", [60_000, -60_001])
async def test_the_time_of_a_send_counts(age_ms: int) -> None:
    protected = _Protected()
    assert "signatureReplayWindowSeconds=60" in _refusal(protected, _send(born_ms=BORN_MS - age_ms))


async def test_a_refused_send_may_be_repeated() -> None:
    protected = _Protected()
    request = _send()
    protected.result = lambda request: request.response(ResponseCode.SYSTEM_BUSY, "busy")
    assert _decoded(protected.ask(request)).code == ResponseCode.SYSTEM_BUSY
    protected.result = _stored
    assert _decoded(protected.ask(_again(request))).code == ResponseCode.SUCCESS
    assert len(protected.served) == 2


async def test_a_send_that_fails_may_be_repeated() -> None:
    protected = _Protected()
    request = _send()

    def fail(_: RemotingCommand) -> Result:
        raise CommandError(ResponseCode.SYSTEM_ERROR, "no")

    protected.result = fail
    with pytest.raises(CommandError, match="no"):
        protected.ask(request)
    protected.result = _stored
    assert _decoded(protected.ask(_again(request))).code == ResponseCode.SUCCESS


async def test_an_answer_that_says_too_late_is_kept() -> None:
    protected = _Protected()
    request = _send()
    protected.result = lambda request: request.response(
        ResponseCode.FLUSH_DISK_TIMEOUT, ext_fields={"q": "1"}
    )
    protected.ask(request)
    again = _again(request)
    answer = _decoded(protected.ask(again))
    assert (answer.code, answer.opaque) == (ResponseCode.FLUSH_DISK_TIMEOUT, again.opaque)
    assert answer.ext_fields == {"q": "1"}
    assert len(protected.served) == 1


async def test_a_repetition_waits_for_the_first_answer() -> None:
    protected = _Protected()
    request, held = _send(), HeldAnswer()
    protected.result = lambda _: held
    assert protected.ask(request) is held
    again = _again(request)
    waiting = protected.ask(again)
    assert isinstance(waiting, asyncio.Future) and not waiting.done()
    held.set_result(_stored(request))
    answer = await waiting
    assert _decoded(answer).opaque == again.opaque
    third = _again(request)
    assert _decoded(protected.ask(third)).opaque == third.opaque
    assert len(protected.served) == 1


@pytest.mark.parametrize("outcome", ["error", "refusal", "cancelled"])
async def test_a_repetition_fails_with_the_first(outcome: str) -> None:
    protected = _Protected()
    request = _send()
    pending: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    protected.result = lambda _: pending
    protected.ask(request)
    waiting = protected.ask(_again(request))
    assert isinstance(waiting, asyncio.Future)
    if outcome == "error":
        pending.set_exception(CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, "lost"))
        with pytest.raises(CommandError, match="lost"):
            await waiting
    elif outcome == "refusal":
        pending.set_result(request.response(ResponseCode.SYSTEM_BUSY))
        assert _decoded(await waiting).code == ResponseCode.SYSTEM_BUSY
    else:
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    protected.result = _stored
    assert _decoded(protected.ask(_again(request))).code == ResponseCode.SUCCESS
    assert len(protected.served) == 2


async def test_requests_that_need_no_signature_pass() -> None:
    protected = _Protected()
    for _ in range(2):
        protected.ask(send("T", born_ms=1))
    assert (len(protected.served), len(protected.window)) == (2, 0)

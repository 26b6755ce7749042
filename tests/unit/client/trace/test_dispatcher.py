"""The dispatcher of spans: batches, bounds, failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rmq_client import InvalidArgumentError, Message, TimedOut, Tracing
from rmq_client.trace.dispatcher import TraceDispatcher
from rmq_client.trace.spans import ConsumeEndSpan, PlainSend
from tests.support.waiting import until


class _Sent:
    """Takes messages; waits or fails if a test says so."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.failure: Exception | None = None
        self.side_by_side = 0
        self._in_flight = 0

    async def __call__(self, message: Message) -> None:
        self._in_flight += 1
        self.side_by_side = max(self.side_by_side, self._in_flight)
        await self.flowing.wait()
        self._in_flight -= 1
        if self.failure is not None:
            raise self.failure
        self.messages.append(message)

    @property
    def lines(self) -> list[str]:
        return [line for message in self.messages for line in message.body.decode().split("\x02") if line]


def _span(number: int, keys: str | None = None) -> ConsumeEndSpan:
    return ConsumeEndSpan(f"ID{number}", keys, "G", "CALL", 1, 1, True, 0)


@asynccontextmanager
async def _dispatcher(tracing: Tracing, sent: _Sent) -> AsyncIterator[TraceDispatcher]:
    dispatcher = TraceDispatcher(tracing, sent)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()


async def test_a_full_batch_is_sent_at_once() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(max_spans=10, linger_seconds=3600), sent) as dispatcher:
        for number in range(9):
            dispatcher.append(_span(number))
        await asyncio.sleep(0)
        assert not sent.messages
        dispatcher.append(_span(9, "k1 k2"))
        await until(lambda: sent.messages)
        (message,) = sent.messages
        assert message.topic == "RMQ_SYS_TRACE_TOPIC"
        assert len(sent.lines) == 10
        assert set(message.keys) == {*(f"ID{number}" for number in range(10)), "k1", "k2"}


async def test_only_full_batches_are_sent_before_the_linger_time_is_over() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(max_spans=10, linger_seconds=3600), sent) as dispatcher:
        sent.flowing.clear()
        for number in range(25):
            dispatcher.append(_span(number))
        await until(lambda: sent.side_by_side == 2)
        for number in range(25, 29):
            dispatcher.append(_span(number))
        sent.flowing.set()
        await until(lambda: len(sent.lines) == 20)
        dispatcher.append(_span(29))
        await until(lambda: len(sent.lines) == 30)
        assert [len(message.keys) for message in sent.messages] == [10, 10, 10]


async def test_full_batches_do_not_delay_the_last_one_beyond_the_linger_time() -> None:
    sent = _Sent()
    tracing = Tracing(max_spans=10, linger_seconds=0.05)
    async with asyncio.timeout(10), _dispatcher(tracing, sent) as dispatcher:
        number = 0
        while not any(len(message.keys) < 10 for message in sent.messages):
            for _ in range(3):
                dispatcher.append(_span(number))
                number += 1
            await asyncio.sleep(0.001)


async def test_plain_sends_and_other_spans_share_messages_in_their_order() -> None:
    sent = _Sent()
    dispatcher = TraceDispatcher(Tracing(linger_seconds=3600), sent, "G")
    dispatcher.start()
    plain: PlainSend = ("T", 3, "ID1", "OID", "R", "h:1", True, 1_000_000, 6_000_000)
    dispatcher.append(plain)
    dispatcher.append(_span(2, "k1"))
    dispatcher.append((*plain[:2], "ID3", *plain[3:]))
    await dispatcher.stop()
    (message,) = sent.messages
    assert [line.split("\x01")[0] for line in sent.lines] == ["Pub", "SubAfter", "Pub"]
    assert message.keys == ["ID1", "ID2", "k1", "ID3"]


async def test_a_partial_batch_is_sent_after_the_linger_time() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(linger_seconds=0.01), sent) as dispatcher:
        dispatcher.append(_span(1))
        await until(lambda: sent.messages)


async def test_stop_sends_remaining_spans() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(linger_seconds=3600), sent) as dispatcher:
        for number in range(5):
            dispatcher.append(_span(number))
    assert len(sent.lines) == 5


async def test_spans_above_the_bound_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(linger_seconds=3600, max_waiting=3), sent) as dispatcher:
        for number in range(10):
            dispatcher.append(_span(number))
        assert dispatcher.dropped == 7
    assert len(sent.lines) == 3
    assert caplog.text.count("too many spans wait") == 1


async def test_unsent_spans_are_counted() -> None:
    sent = _Sent()
    sent.failure = TimedOut("no answer")
    async with _dispatcher(Tracing(max_spans=2, linger_seconds=3600), sent) as dispatcher:
        dispatcher.append(_span(1))
        dispatcher.append(_span(2))
        await until(lambda: dispatcher.dropped == 2)


async def test_a_hanging_broker_does_not_block_acknowledgements_to_others() -> None:
    sent = _Sent()
    sent.flowing.clear()
    tracing = Tracing(max_spans=1, linger_seconds=0.01, max_waiting=20)
    async with _dispatcher(tracing, sent) as dispatcher:
        for number in range(100):
            dispatcher.append(_span(number))
        await until(lambda: sent.side_by_side == 4)
        assert dispatcher.dropped == 80
        sent.flowing.set()
    assert len(sent.lines) == 20


async def test_messages_stay_within_their_bounds() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(max_spans=1000, linger_seconds=3600), sent) as dispatcher:
        for number in range(200):
            dispatcher.append(_span(number, f"{number:0300}"))
    assert len(sent.lines) == 200
    assert len(sent.messages) > 1
    for message in sent.messages:
        assert len(message.body) <= 128_000
        assert len(" ".join(message.keys)) <= 16_000


async def test_spans_come_from_any_thread() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(max_spans=10, linger_seconds=3600), sent) as dispatcher:

        def trace() -> None:
            for number in range(100):
                dispatcher.append(_span(number))

        threads = [threading.Thread(target=trace) for _ in range(4)]
        for thread in threads:
            thread.start()
        await until(lambda: not any(thread.is_alive() for thread in threads))
    assert len(sent.lines) == 400


async def test_text_that_is_no_unicode_is_traced_with_question_marks() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(max_spans=1, linger_seconds=3600), sent) as dispatcher:
        dispatcher.append(_span(1, "bad\ud800"))
        await until(lambda: sent.messages)
        dispatcher.append(_span(2))
        await until(lambda: len(sent.messages) == 2)
        assert dispatcher.dropped == 0
    assert "bad?" in sent.lines[0]


async def test_a_message_id_with_spaces_is_traced() -> None:
    sent = _Sent()
    async with _dispatcher(Tracing(max_spans=1, linger_seconds=3600), sent) as dispatcher:
        dispatcher.append(ConsumeEndSpan("an id", "k", "G", "CALL", 1, 1, True, 0))
        await until(lambda: sent.messages)
    assert set(sent.messages[0].keys) == {"an", "id", "k"}


async def test_an_unexpected_failure_does_not_stop_the_detector(caplog: pytest.LogCaptureFixture) -> None:
    sent = _Sent()
    sent.failure = RuntimeError("a surprise")
    async with _dispatcher(Tracing(max_spans=1, linger_seconds=3600), sent) as dispatcher:
        dispatcher.append(_span(1))
        await until(lambda: dispatcher.dropped == 1)
        assert "a surprise" in caplog.text
        sent.failure = None
        dispatcher.append(_span(2))
        await until(lambda: sent.messages)
    assert dispatcher.dropped == 1


async def test_a_span_that_cannot_be_encoded_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    class _Unwritable(ConsumeEndSpan):
        def line(self) -> str:
            raise RuntimeError("a surprise")

    sent = _Sent()
    async with _dispatcher(Tracing(max_spans=1, linger_seconds=3600), sent) as dispatcher:
        dispatcher.append(_Unwritable("ID", None, "G", "CALL", 1, 1, True, 0))
        await until(lambda: dispatcher.dropped == 1)
        assert "a surprise" in caplog.text
        dispatcher.append(_span(2))
        await until(lambda: sent.messages)


async def test_spans_left_at_the_stop_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmq_client.trace.dispatcher._STOP_SECONDS", 0.01)
    sent = _Sent()
    sent.flowing.clear()
    async with _dispatcher(Tracing(max_spans=1, linger_seconds=3600), sent) as dispatcher:
        for number in range(10):
            dispatcher.append(_span(number))
        await until(lambda: sent.side_by_side == 4)
    assert dispatcher.dropped == 10
    assert not dispatcher._spans


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tracing(topic=""),
        lambda: Tracing(max_spans=0),
        lambda: Tracing(linger_seconds=0),
        lambda: Tracing(max_waiting=0),
    ],
)
def test_invalid_settings_are_refused(make: Callable[[], Tracing]) -> None:
    with pytest.raises(InvalidArgumentError):
        make()

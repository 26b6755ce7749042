"""Which messages a deduplicated listener gets, and what its outcome means for all of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rmq_client import (
    ClaimResult,
    ConsumeContext,
    ConsumeResult,
    Deduplicator,
    InvalidArgumentError,
    JsonSerializer,
    MemoryDeduplicationStore,
    MessageExt,
    OrderlyContext,
    PushConsumer,
    UnreadableBody,
    UsageError,
    blocking,
    body_listener,
)
from tests.unit.client.consumer.listener_support import QUEUE

SUCCESS, LATER = ConsumeResult.SUCCESS, ConsumeResult.LATER
Call = Callable[..., Any]


def _message(key: str, body: bytes = b"{}") -> MessageExt:
    message = MessageExt("T", body)
    message.properties["UNIQ_KEY"] = key
    return message


class _Slow:
    """A store that waits, as one on the network does, and may fail."""

    def __init__(self) -> None:
        self.memory = MemoryDeduplicationStore()
        self.failing: set[str] = set()

    async def claim(self, key: str, token: str, lease_seconds: float) -> ClaimResult:
        await self._wait("claim", key)
        return await self.memory.claim(key, token, lease_seconds)

    async def confirm(self, key: str, token: str) -> None:
        await self._wait("confirm", key)
        await self.memory.confirm(key, token)

    async def release(self, key: str, token: str) -> None:
        await self._wait("release", key)
        await self.memory.release(key, token)

    async def _wait(self, *call: str) -> None:
        await asyncio.sleep(0)
        if " ".join(call) in self.failing:
            raise OSError("the store is away")


@pytest.fixture(params=["function", "coroutine", "coroutine and a slow store", "blocking and a slow store"])
def wrap(request: pytest.FixtureRequest) -> Callable[[Any], Call]:
    """Return a function that deduplicates a listener, and calls it with messages by their keys."""

    def wrap(listener: Any) -> Call:
        async def as_coroutine(messages: list[MessageExt], context: Any) -> Any:
            return listener(messages, context)

        kind = request.param
        store = _Slow() if "slow" in kind else None
        deduplicator: Any = blocking.Deduplicator(store) if "blocking" in kind else Deduplicator(store)
        wrapped: Any = deduplicator.listener(as_coroutine if "coroutine" in kind else listener)

        def call(*keys: str, context: Any = None) -> Any:
            messages = [_message(key) for key in keys]
            outcome = wrapped(messages, context or ConsumeContext(QUEUE))
            return asyncio.run(outcome) if asyncio.iscoroutine(outcome) else outcome

        return call

    return wrap


class _Listener:
    """Records the keys that it gets; `outcome` may be an exception, or a number as `ack_index`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.outcome: object = None

    def __call__(self, messages: list[MessageExt], context: Any) -> ConsumeResult | None:
        self.calls.append([message.msg_id for message in messages])
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        if isinstance(self.outcome, int):
            context.ack_index = self.outcome
            return None
        return self.outcome  # type: ignore[return-value]  # also wrong ones


def test_a_duplicate_is_consumed_without_a_call(wrap: Callable[[Any], Call]) -> None:
    listener = _Listener()
    call = wrap(listener)
    assert [call("a"), call("a"), call("b"), call("a", "b")] == [SUCCESS] * 4
    assert listener.calls == [["a"], ["b"]]


@pytest.mark.parametrize("failure", [ValueError("x"), LATER, asyncio.CancelledError(), "nonsense"])
def test_a_failed_message_is_processed_again(wrap: Callable[[Any], Call], failure: object) -> None:
    listener = _Listener()
    call = wrap(listener)
    listener.outcome = failure
    if failure is LATER:
        assert call("a") is LATER
    else:
        with pytest.raises(BaseException, match=r"x|nonsense|^$"):
            call("a")
    listener.outcome = SUCCESS
    assert call("a") is SUCCESS
    assert call("a") is SUCCESS
    assert listener.calls == [["a"], ["a"]]


def test_duplicates_in_one_call_share_its_outcome(wrap: Callable[[Any], Call]) -> None:
    listener = _Listener()
    call = wrap(listener)
    assert call("a", "b", "a") is SUCCESS
    assert listener.calls == [["a", "b"]]


def test_consumed_messages_from_the_front_count(wrap: Callable[[Any], Call]) -> None:
    listener = _Listener()
    call = wrap(listener)
    assert call("a") is SUCCESS
    listener.outcome = 0  # the first of the new ones
    context = ConsumeContext(QUEUE)
    assert call("a", "b", "c", "b", context=context) is SUCCESS
    assert context.ack_index == 1, "a was consumed before, b now"
    listener.outcome = None
    again = ConsumeContext(QUEUE)
    assert call("c", "b", context=again) is SUCCESS
    assert again.ack_index is None
    assert listener.calls == [["a"], ["b", "c"], ["c"]]


def test_orderly_listeners_repeat_what_is_left(wrap: Callable[[Any], Call]) -> None:
    listener = _Listener()
    call = wrap(listener)
    assert call("a", context=OrderlyContext(QUEUE)) is SUCCESS
    listener.outcome = LATER
    assert call("a", "b", context=OrderlyContext(QUEUE)) is LATER
    listener.outcome = ConsumeResult.COMMIT
    assert call("a", "b", context=OrderlyContext(QUEUE)) is SUCCESS
    assert listener.calls == [["a"], ["b"], ["b"]]
    with pytest.raises(UsageError, match="a deduplicated listener cannot commit by itself"):
        call("c", context=OrderlyContext(QUEUE, auto_commit=False))
    assert call("c", context=OrderlyContext(QUEUE)) is SUCCESS


async def test_concurrent_duplicates_are_refused_until_the_first_has_ended() -> None:
    release, calls = asyncio.Event(), list[str]()

    async def listen(messages: list[MessageExt]) -> None:
        calls.append(messages[0].msg_id)
        await release.wait()

    listener = Deduplicator().listener(listen)
    first = asyncio.create_task(listener([_message("a")], ConsumeContext(QUEUE)))
    await asyncio.sleep(0)
    context = ConsumeContext(QUEUE)
    assert await listener([_message("a")], context) is LATER
    release.set()
    assert await first is SUCCESS
    assert await listener([_message("a")], context) is SUCCESS
    assert calls == ["a"]


async def test_a_cancelled_call_releases_its_message() -> None:
    calls: list[int] = []

    async def listen(messages: list[MessageExt]) -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            await asyncio.Event().wait()

    listener = Deduplicator(_Slow()).listener(listen)
    first = asyncio.create_task(listener([_message("a")], ConsumeContext(QUEUE)))
    while not calls:  # noqa: ASYNC110  # the store takes a few turns of the loop
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    for _ in range(5):
        await asyncio.sleep(0)
    assert await listener([_message("a")], ConsumeContext(QUEUE)) is SUCCESS
    assert calls == [0, 1]


async def test_nothing_is_processed_while_the_store_cannot_be_asked(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[list[str]] = []

    async def listen(messages: list[MessageExt]) -> None:
        calls.append([message.msg_id for message in messages])

    store = _Slow()
    listener = Deduplicator(store).listener(listen)
    store.failing = {"claim b"}
    with pytest.raises(OSError, match="the store is away"):
        await listener([_message("a"), _message("b")], ConsumeContext(QUEUE))
    assert not calls
    store.failing = {"confirm a"}
    assert await listener([_message("a")], ConsumeContext(QUEUE)) is SUCCESS, "it is processed"
    assert "processed message not confirmed key=a" in caplog.text
    assert await listener([_message("a")], ConsumeContext(QUEUE)) is LATER, "until the lease ends"


async def test_none_may_mean_later() -> None:
    calls: list[str] = []

    async def listen(messages: list[MessageExt]) -> None:
        calls.append("a")

    listener = Deduplicator().listener(listen, none_means=LATER)
    assert await listener([_message("a")], ConsumeContext(QUEUE)) is LATER
    assert await listener([_message("a")], ConsumeContext(QUEUE)) is LATER
    assert len(calls) == 2


def test_body_listeners_are_deduplicated() -> None:
    got: list[object] = []
    listener = Deduplicator().listener(body_listener(got.append, JsonSerializer(), kind=Any))
    for _ in range(2):
        assert listener([_message("a", b"1")], ConsumeContext(QUEUE)) is SUCCESS
    assert got == [1]
    with pytest.raises(UnreadableBody):
        listener([_message("b", b"{")], ConsumeContext(QUEUE))
    assert listener([_message("b", b"2")], ConsumeContext(QUEUE)) is SUCCESS, "not seen"
    with pytest.raises(InvalidArgumentError, match="max_messages=2: must be 1"):
        PushConsumer("h:1", group="g", topics="T", listener=listener, max_messages=2)


@pytest.mark.parametrize("by", ["keys", lambda message: message.keys[0]])
def test_keys_and_functions(by: Any) -> None:
    deduplicator = Deduplicator(by=by)
    message, twin = _message("id-1"), _message("id-2")
    message.keys = twin.keys = ["4711"]
    assert deduplicator.key_of(message) == deduplicator.key_of(twin)


def test_keys_count_within_their_topic_and_messages_without_keys_have_their_id() -> None:
    deduplicator = Deduplicator(by="keys")
    message, other = _message("id-1"), MessageExt("U", b"")
    message.keys = other.keys = ["4711"]
    assert deduplicator.key_of(message) != deduplicator.key_of(other)
    assert deduplicator.key_of(_message("id-1")) == "id-1"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Deduplicator(by="key"), r"by='key': must be 'id', 'keys' or a function"),  # type: ignore[arg-type]
        (lambda: Deduplicator(_Slow), "must have the methods of a DeduplicationStore"),  # type: ignore[arg-type]
        (lambda: Deduplicator(lease_seconds=0), "lease_seconds=0: must be above 0 s"),
        (lambda: MemoryDeduplicationStore(max_keys=0), "max_keys=0: must be at least 1"),
        (lambda: Deduplicator(_Slow()).listener(lambda messages: None), "must be a coroutine function"),
        (lambda: Deduplicator(by=lambda message: "").key_of(_message("a")), "by=... returned ''"),
    ],
)
def test_wrong_use_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make()


async def test_a_block_confirms_or_releases() -> None:
    deduplicator, message = Deduplicator(_Slow()), _message("a")
    with pytest.raises(ValueError, match="x"):
        async with deduplicator.once(message) as claim:
            assert claim is ClaimResult.NEW
            raise ValueError("x")
    async with deduplicator.once(message) as claim:
        assert claim is ClaimResult.NEW
        async with deduplicator.once(message, wait_seconds=0.06) as again:
            assert again is ClaimResult.BUSY
    async with deduplicator.once(message) as claim:
        assert claim is ClaimResult.DONE


async def test_a_block_can_wait_for_another_consumer() -> None:
    deduplicator, message = Deduplicator(), _message("a")
    leave = asyncio.Event()

    async def process() -> None:
        async with deduplicator.once(message):
            await leave.wait()

    first = asyncio.create_task(process())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.01, leave.set)
    async with deduplicator.once(message, wait_seconds=5) as claim:
        assert claim is ClaimResult.DONE
    await first


def test_a_block_without_asyncio() -> None:
    deduplicator, message = blocking.Deduplicator(_Slow()), _message("a")
    with pytest.raises(ValueError, match="x"), deduplicator.once(message):
        raise ValueError("x")
    for expected in (ClaimResult.NEW, ClaimResult.DONE):
        with deduplicator.once(message) as claim:
            assert claim is expected
    assert deduplicator.key_of(message) == "a"
    assert isinstance(deduplicator.store, _Slow)

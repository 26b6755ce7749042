"""Send hooks: batches, and hooks that refuse a message."""

from __future__ import annotations

import pytest

from rmq_client import Message, MessageQueue, SendBatch, SendContext, SendHook, SendResult, SendStatus
from rmq_client.hooks.send import SendHooks


class _Hook(SendHook):
    """Records its calls; refuses messages and batches with a certain body."""

    def __init__(self, calls: list[str], name: str, *, refuses: bytes | None = None) -> None:
        self._calls = calls
        self._name = name
        self._refuses = refuses
        self.contexts: list[SendContext] = []
        self.batches: list[SendBatch] = []

    def before(self, context: SendContext) -> None:
        self._calls.append(f"{self._name} before {context.message.body.decode()}")
        if context.message.body == self._refuses:
            raise ValueError("refused by the test")

    def after(self, context: SendContext) -> None:
        self._calls.append(f"{self._name} after {context.message.body.decode()}")
        self.contexts.append(context)

    def before_batch(self, batch: SendBatch) -> None:
        self._calls.append(f"{self._name} before batch")
        assert batch.contexts == []

    def after_batch(self, batch: SendBatch) -> None:
        self._calls.append(f"{self._name} after batch")
        self.batches.append(batch)


def _result(number: int) -> SendResult:
    return SendResult(SendStatus.SEND_OK, f"id-{number}", MessageQueue("T", "broker-a", 0), number, "")


def test_a_batch_is_around_its_messages() -> None:
    calls: list[str] = []
    hook = _Hook(calls, "a")
    hooks = SendHooks("g", [hook])
    messages = [Message("T", b"1"), Message("T", b"2")]
    batch = hooks.begin_batch(messages)
    assert calls == ["a before batch", "a before 1", "a before 2"]
    calls.clear()
    hooks.end_batch(batch, [_result(1), _result(2)])
    assert calls == ["a after 1", "a after 2", "a after batch"]
    assert hook.batches == [batch]
    assert [context.batch for context in hook.contexts] == [batch, batch]
    assert [context.result and context.result.msg_id for context in batch.contexts] == ["id-1", "id-2"]
    assert batch.error is None


def test_a_failed_batch_has_its_error_everywhere() -> None:
    hooks = SendHooks("g", [_Hook([], "a")])
    batch = hooks.begin_batch([Message("T", b"1")])
    error = OSError("as ordered")
    hooks.end_batch(batch, [], error)
    assert batch.error is error
    assert [context.error for context in batch.contexts] == [error]


def test_hooks_before_one_that_refuses_get_the_error() -> None:
    calls: list[str] = []
    first = _Hook(calls, "a")
    hooks = SendHooks("g", [first, _Hook(calls, "b", refuses=b"1"), _Hook(calls, "c")])
    with pytest.raises(ValueError, match="refused"):
        hooks.begin(Message("T", b"1"))
    assert calls == ["a before 1", "b before 1", "a after 1"]
    assert isinstance(first.contexts[0].error, ValueError)


def test_a_refused_message_ends_its_batch() -> None:
    calls: list[str] = []
    hook = _Hook(calls, "a", refuses=b"2")
    hooks = SendHooks("g", [hook])
    with pytest.raises(ValueError, match="refused"):
        hooks.begin_batch([Message("T", b"1"), Message("T", b"2"), Message("T", b"3")])
    assert calls == ["a before batch", "a before 1", "a before 2", "a after 1", "a after batch"]
    assert isinstance(hook.batches[0].error, ValueError)

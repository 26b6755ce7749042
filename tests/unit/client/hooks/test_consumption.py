"""Calls of hooks for receptions and settlements."""

from __future__ import annotations

import pytest

from rmq_client import ConsumeHook, MessageExt, MessageQueue, Reception, Settlement, SettlementKind
from rmq_client.hooks.consumption import ConsumptionHooks
from rmq_client.namespaces import NO_NAMESPACE, Namespace

_QUEUE = MessageQueue("T", "broker-a", 0)


class _Hook(ConsumeHook):
    def __init__(self) -> None:
        self.receptions: list[Reception] = []
        self.settlements: list[Settlement] = []

    def received(self, reception: Reception) -> None:
        self.receptions.append(reception)

    def settled(self, settlement: Settlement) -> None:
        self.settlements.append(settlement)


class _Failing(ConsumeHook):
    def received(self, reception: Reception) -> None:
        raise ValueError("as ordered by the test")


def _hooks(*hooks: ConsumeHook, namespace: str = "") -> ConsumptionHooks:
    made = ConsumptionHooks.of("g", Namespace(namespace), hooks)
    assert made is not None
    return made


def test_hooks_of_the_listener_alone_cost_nothing() -> None:
    class Listening(ConsumeHook):
        pass

    assert ConsumptionHooks.of("g", NO_NAMESPACE, [Listening()]) is None
    assert ConsumptionHooks.of("g", NO_NAMESPACE, []) is None


def test_a_reception_has_the_topic_of_all_messages() -> None:
    hook = _Hook()
    hooks = _hooks(hook)
    hooks.received([MessageExt("T"), MessageExt("T")], 0.5, prefetched=True)
    hooks.received([MessageExt("T"), MessageExt("U")], 0.5)
    hooks.received([], 0.5)
    assert [(one.topic, one.prefetched, len(one.messages)) for one in hook.receptions] == [
        ("T", True, 2),
        (None, False, 2),
    ]


def test_a_failed_reception_is_told_and_raised() -> None:
    hook = _Hook()
    with pytest.raises(OSError, match="down"), _hooks(hook, namespace="n").receiving(lambda: ["n%T"]):
        raise OSError("down")
    (reception,) = hook.receptions
    assert isinstance(reception.error, OSError)
    assert reception.topic == "T"
    assert reception.messages == ()


def test_a_failing_hook_keeps_no_other_from_the_reception(caplog: pytest.LogCaptureFixture) -> None:
    hook = _Hook()
    _hooks(_Failing(), hook).received([MessageExt("T")], 0.0)
    assert len(hook.receptions) == 1
    assert "consume hook failed" in caplog.text


def test_a_settlement_is_told_with_its_error() -> None:
    hook = _Hook()
    hooks = _hooks(hook)
    message = MessageExt("T")
    with hooks.settling(SettlementKind.INVISIBLE_TIME, [message], delay_seconds=7.0):
        pass
    with pytest.raises(OSError, match="down"), hooks.settling(SettlementKind.ACK, [message]):
        raise OSError("down")
    first, second = hook.settlements
    assert (first.kind, first.delay_seconds, first.error) == (SettlementKind.INVISIBLE_TIME, 7.0, None)
    assert (second.kind, second.messages) == (SettlementKind.ACK, [message])
    assert isinstance(second.error, OSError)


def test_commits_are_told_by_topic_without_the_namespace() -> None:
    hook = _Hook()
    offsets = {MessageQueue("n%T", "broker-a", 0): 3, MessageQueue("n%U", "broker-a", 1): 4}
    _hooks(hook, namespace="n").committed(offsets, 0.1, broker_address="b:1")
    assert [(one.topic, dict(one.offsets), one.broker_address) for one in hook.settlements] == [
        ("T", {_QUEUE: 3}, "b:1"),
        ("U", {MessageQueue("U", "broker-a", 1): 4}, "b:1"),
    ]


def test_automatic_commits_of_the_same_offset_are_told_once() -> None:
    hook = _Hook()
    hooks = _hooks(hook)
    for offset in (3, 3, 4):
        hooks.committed({_QUEUE: offset}, 0.1, automatic=True)
    assert [one.offsets[_QUEUE] for one in hook.settlements] == [3, 4]
    hooks.committed({_QUEUE: 4}, 0.1, OSError("down"), automatic=True)
    hooks.committed({_QUEUE: 4}, 0.1)
    assert len(hook.settlements) == 4

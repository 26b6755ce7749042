"""The OpenTelemetry context in message properties."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from rmq_client import HookContext, Message, MessageExt, SendContext
from rmq_client.trace.open_telemetry import AttachContextHook, InjectContextHook, propagation


class _Propagation:
    """Replaces opentelemetry-api."""

    def __init__(self) -> None:
        self.current: list[str | None] = [None]

    def inject(self, carrier: dict[str, str]) -> None:
        if self.current[-1] is not None:
            carrier["traceparent"] = self.current[-1]

    def attach(self, carrier: Mapping[str, str]) -> object:
        self.current.append(carrier.get("traceparent"))
        return len(self.current)

    def detach(self, token: Any) -> None:
        assert token == len(self.current)
        self.current.pop()


def test_a_message_carries_the_context_of_its_send() -> None:
    known = _Propagation()
    context = SendContext("G", Message("T", b"x"))
    InjectContextHook(known).before(context)
    assert context.properties == {}
    known.current = ["00-trace-span-01"]
    InjectContextHook(known).before(context)
    assert context.properties == {"traceparent": "00-trace-span-01"}


def test_the_listener_runs_in_the_messages_context() -> None:
    known = _Propagation()
    hook = AttachContextHook(known)
    message = MessageExt("T", b"x", 0, {"traceparent": "00-trace-span-01"})
    context = HookContext("G", None, [message])
    hook.before(context)
    assert known.current == [None, "00-trace-span-01"]
    hook.after(context)
    assert known.current == [None]


def test_a_call_that_was_never_begun_is_skipped() -> None:
    known = _Propagation()
    AttachContextHook(known).after(HookContext("G", None, [MessageExt("T", b"x", 0, {})]))
    assert known.current == [None]


def test_the_real_opentelemetry_api_propagates() -> None:
    trace = pytest.importorskip("opentelemetry.trace", reason="opentelemetry-api is not installed")
    known = propagation()
    assert known is not None
    carrier = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    token = known.attach(carrier)
    try:
        assert trace.get_current_span().get_span_context().span_id == 0xB7AD6B7169203331
        again: dict[str, str] = {}
        known.inject(again)
        assert again["traceparent"] == carrier["traceparent"]
    finally:
        known.detach(token)
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("error", [ValueError("Propagator jaeger not found"), ImportError("half installed")])
def test_a_failing_opentelemetry_import_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fails(name: str) -> ModuleType:
        raise error

    monkeypatch.setattr("rmq_client.trace.open_telemetry.import_module", fails)
    assert propagation() is None
    assert str(error) in caplog.text


def test_a_missing_opentelemetry_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name}")

    monkeypatch.setattr("rmq_client.trace.open_telemetry.import_module", fails)
    assert propagation() is None
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_failing_propagator_does_not_fail_the_send(caplog: pytest.LogCaptureFixture) -> None:
    class _Failing(_Propagation):
        def inject(self, carrier: dict[str, str]) -> None:
            carrier["half"] = "done"
            raise RuntimeError("no context")

    hook = InjectContextHook(_Failing())
    context = SendContext("G", Message("T", b"x"), {"mark": "m"})
    for _ in range(3):
        hook.before(context)
    assert context.properties == {"mark": "m"}
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1

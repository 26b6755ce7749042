"""Every parameter of every public class and function refuses nonsense by a ClientError with its name.

The names are read from `rmq_client.__all__`. So a new class, method or parameter is checked, too, or must
be added to one of the lists below with a reason.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final

import pytest

import rmq_client
from rmq_client import (
    ClientError,
    Credentials,
    Message,
    MessageExt,
    MessageQueue,
    TransactionState,
    blocking,
)
from tests.support.rows import each_row

_QUEUE: Final = MessageQueue("T", "broker-a", 0)

# Values of required parameters, by name.
_VALID: Final[dict[str, Any]] = {
    "access_key": "key",
    "broker_id": 1,
    "broker_name": "broker-a",
    "broker_names": ["broker-a"],
    "body": b"x",
    "chosen": [_QUEUE],
    "function": lambda body: None,
    "client_id": "127.0.0.1@1",
    "controller": "127.0.0.1:9878",
    "enabled": True,
    "group": "g",
    "handle": "handle",
    "kind": dict,
    "inner": rmq_client.averagely,
    "invisible_seconds": 30,
    "key": "k",
    "listener": lambda *arguments: None,
    "message": Message("T", b"x"),
    "message_id": "id",
    "messages": [Message("T", b"x")],
    "name": "ann",
    "offset": 0,
    "password": "secret",
    "pop": True,
    "queue": _QUEUE,
    "queues": [_QUEUE],
    "readable": True,
    "request": Message("T", b"x"),
    "room_of_client": lambda client_id: "a",
    "room_of_queue": lambda queue: "a",
    "rooms": "a",
    "rules": [rmq_client.AccessRule("Topic:T", ("Pub",))],
    "secret_key": "secret",
    "serializer": rmq_client.JsonSerializer(),
    "settings": {"traceOn": "true"},
    "source": "g",
    "statistic": "TOPIC_PUT_NUMS",
    "table": "t",
    "target": "h",
    "threshold_bytes": 1,
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "topic": "T",
    "user": "ann",
    "value": "v",
    "what": "unused topics",
    "work": lambda message: TransactionState.COMMIT,
}
_RECEIVED: Final = MessageExt("T", b"x")

# Classes whose objects applications receive and do not construct, and those that hold any values until they
# are given to a call, which checks them: queues, contexts.
_NOT_CONSTRUCTED: Final = frozenset(
    {
        "ConnectionSettings",  # checked by ClientSettings(connection=...)
        "ConsumeContext",
        "ConsumerLag",
        "ConsumerQueueLag",
        "DeduplicatedListener",
        "HookContext",
        "MessageExt",
        "MessageQueue",
        "OrderlyContext",
        "PullResult",
        "QueryResult",
        "RawPull",
        "Recall",
        "Reception",
        "SendBatch",
        "SendContext",
        "SendResult",
        "Settlement",
        "ShareChange",
        "Sql",  # a str: checked where it is an expression
        "TopicRoute",
        "TopicStatistics",
        "Transaction",
        "TransactionEnd",
        "TransactionResult",
    }
)
# Modules of values that calls of Admin return.
_RESULT_MODULES: Final = frozenset(
    {
        "rmq_client.admin.broker_results",
        "rmq_client.admin.results",
        "rmq_client.admin.static_results",
        "rmq_client.trace.decoding",
    }
)
# Functions and classes that the SDK calls, not the application.
_CALLBACKS: Final = frozenset(
    {
        "averagely",
        "by_circle",
        "by_key_hash",
        "by_random",
        "ConsumeHook",
        "DeduplicationStore",
        "RebalanceListener",
        "SendHook",
        "Serializer",
    }
)
_FUNCTIONS: Final = (
    "body_listener",
    "by_configuration",
    "by_consistent_hash",
    "by_machine_room",
    "decode_body",
    "nearby",
    "reply_to",
)
# The `key` of sends may be any object, which is hashed.
_ANY_OBJECT: Final = "key"


# Methods that take a message that was received.
_OF_RECEIVED: Final = frozenset(
    {"ack", "change_invisible_time", "dead_letter", "decode", "once", "resend_dead_letter"}
)


class _Nonsense:
    """An object that is of no use to any parameter."""

    def __repr__(self) -> str:
        return "<nonsense>"


def _classes(module: Any) -> Iterator[tuple[str, type]]:
    for name in rmq_client.__all__:
        value = getattr(module, name, None)
        if (
            inspect.isclass(value)
            and not issubclass(value, (BaseException, Enum))
            and name not in _NOT_CONSTRUCTED | _CALLBACKS
            and value.__module__ not in _RESULT_MODULES
        ):
            yield name, value


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]


def _required(parameters: list[inspect.Parameter], but: str) -> dict[str, Any]:
    return {
        one.name: _VALID[one.name]
        for one in parameters
        if one.default is inspect.Parameter.empty and one.name != but
    }


def _cases() -> Iterator[tuple[Any, str | None, str]]:
    for module in (rmq_client, blocking):
        for name, kind in _classes(module):
            for parameter in _parameters(kind):
                yield kind, None, parameter.name
            if not hasattr(kind, "start") and name != "Deduplicator":
                continue
            for method, function in inspect.getmembers(kind, inspect.isfunction):
                if method.startswith("_"):
                    continue
                for parameter in _parameters(function):
                    if parameter.name != _ANY_OBJECT:
                        yield kind, method, parameter.name
    for name in _FUNCTIONS:
        function = getattr(rmq_client, name)
        for parameter in _parameters(function):
            yield function, None, parameter.name


def _call(made: Any, method: str, arguments: dict[str, Any]) -> object:
    """Call a method of an object that was not started: arguments are checked first."""
    outcome = getattr(made, method)(**arguments)
    if inspect.iscoroutine(outcome):
        try:
            outcome.send(None)
        except StopIteration as end:
            return end.value
        finally:
            outcome.close()
    if hasattr(outcome, "result"):
        return outcome.result(5)
    return outcome


@each_row(("kind", "method", "name"), _cases())
def test_nonsense_is_refused_by_name(kind: Any, method: str | None, name: str) -> None:
    with pytest.raises(ClientError) as refusal:
        if method is None:
            required = _required(_parameters(kind), name)
            if kind is rmq_client.decode_body:
                required["message"] = _RECEIVED
            kind(**{**required, name: _Nonsense()})
        else:
            made = kind(**_required(_parameters(kind), ""))
            parameters = _parameters(getattr(kind, method))
            arguments = {**_required(parameters, name), name: _Nonsense()}
            if method in _OF_RECEIVED and name != "message":
                arguments["message"] = _RECEIVED
            if method == "create_static_topic" and name != "queues":
                arguments["queues"] = 1  # a number here
            _call(made, method, arguments)
    assert re.search(rf"\b{name}\b", str(refusal.value)), f"the error does not name it: {refusal.value}"


def _plain_calls() -> Iterator[tuple[Any, str]]:
    for module in (rmq_client, blocking):
        for _, kind in _classes(module):
            for method, function in inspect.getmembers(kind, inspect.isfunction):
                is_called = hasattr(kind, "stop") and method != "start" and not method.startswith("_")
                if is_called and all(one.default is not one.empty for one in _parameters(function)):
                    yield kind, method


@each_row(("kind", "method"), _plain_calls())
async def test_a_call_before_the_start_is_refused_or_does_nothing(kind: Any, method: str) -> None:
    made = kind(**_required(_parameters(kind), ""))
    with suppress(ClientError):
        outcome = getattr(made, method)()
        if inspect.isawaitable(outcome):
            await asyncio.wait_for(outcome, 20)


@each_row(
    ("make", "problem"),
    [
        (lambda: rmq_client.Producer(group="g", timeout_seconds=-1), "timeout_seconds=-1: must be above 0 s"),
        (lambda: rmq_client.Producer(group="g", timeout_seconds=float("nan")), "must be above 0 s"),
        (lambda: rmq_client.Producer(group="g", timeout_seconds=True), "a number of seconds or a timedelta"),
        (lambda: rmq_client.Producer(group="g", max_message_bytes=0), "max_message_bytes=0"),
        (lambda: _push(workers=0), "workers=0: must be at least 1"),
        (lambda: _push(workers=2.0), "workers=2.0: must be a whole number, not a float"),
        (lambda: _push(max_messages=0), "max_messages=0: must be at least 1"),
        (lambda: _push(suspend_seconds=-1), "suspend_seconds=-1: must be at least 0 s"),
        (lambda: _push(orderly="yes"), "orderly='yes': must be True or False, not a str"),
        (lambda: _push(consume_from=datetime(2026, 1, 1)), "has no time zone: use datetime.now"),
        (lambda: _push(consume_from=datetime(1960, 1, 1, tzinfo=UTC)), "must not be before 1970"),
        (lambda: _push(topics={"T": "a | b"}), r"tag 'a \| b' of 'a \| b' contains a single \|"),
        (lambda: _push(topics=b"T"), "must be the name of a topic"),
        (lambda: _push(listener=lambda: None), "listener=.* is called with a list of messages"),
        (
            lambda: _push(listener=_of_one_message),
            "is called with a list.*'message' is annotated as MessageExt",
        ),
        (lambda: _push(listener=lambda a, b, c: None), "is called with a list of messages and a context"),
        (lambda: _push(hooks=[_Nonsense()]), r"hooks\[0\]=<nonsense>: must be a ConsumeHook"),
        (lambda: rmq_client.Message("T", "text"), r"encode texts with \.encode\(\)"),  # type: ignore[arg-type]
        (lambda: rmq_client.ConsumerTiming(rebalance_seconds=timedelta(0)), "rebalance_seconds"),
        (lambda: rmq_client.Producer("localhost", group="g"), "namesrv='localhost': .*pass 'host:9876;other"),
        (lambda: rmq_client.Producer("", group="g"), "namesrv='': the list of name servers is empty"),
        (lambda: rmq_client.Producer("http://", group="g"), "namesrv='http://': .*the URL has no host"),
        (lambda: rmq_client.Admin(["a:1", "http://b"]), "must be the only address"),
        (lambda: Credentials("key", 5), "secret_key must be a str"),  # type: ignore[arg-type]
    ],
)
def test_values_out_of_bounds_are_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ClientError, match=problem):
        make()


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (rmq_client.AccessRule("Topic:T", "Pub"), r"rules\[0\]\.actions='Pub': must be a list of str"),  # type: ignore[arg-type]
        (rmq_client.AccessRule("Topic:T", ()), r"rules\[0\]\.actions=\(\): must not be empty"),
        (rmq_client.AccessRule("", ("Pub",)), r"rules\[0\]\.resource='': must not be empty"),
        (rmq_client.AccessRule("T", ("Pub",), source_ips="10."), "source_ips='10.': must be a list"),  # type: ignore[arg-type]
    ],
)
async def test_a_wrong_rule_is_refused(rule: rmq_client.AccessRule, problem: str) -> None:
    with pytest.raises(ClientError, match=problem):
        await rmq_client.Admin("127.0.0.1:1").create_rules("ann", [rule])


def test_the_secret_is_in_no_error() -> None:
    with pytest.raises(ClientError) as refusal:
        Credentials("key", " secret ")
    assert "secret " not in str(refusal.value).replace("secret_key ", "")


def test_durations_are_seconds_or_timedeltas() -> None:
    policy = rmq_client.BatchPolicy(linger_seconds=timedelta(milliseconds=20))
    assert policy == rmq_client.BatchPolicy(linger_seconds=0.02)
    settings = rmq_client.ClientSettings(heartbeat_seconds=timedelta(minutes=1))
    assert settings.heartbeat_seconds == 60.0
    assert hash(settings) == hash(rmq_client.ClientSettings(heartbeat_seconds=60))
    assert rmq_client.ConsumerTiming(commit_seconds=timedelta(seconds=2)).commit_seconds == 2.0


def _of_one_message(message: MessageExt) -> None: ...


def _push(**options: Any) -> rmq_client.PushConsumer:
    arguments: dict[str, Any] = {"group": "g", "topics": "T", "listener": lambda messages: None, **options}
    return rmq_client.PushConsumer("127.0.0.1:9876", **arguments)

"""Apache's Python client for 5.x (`rocketmq-python-client`) as a program: `python main.py PROXY-ADDRESS`.

The variables ACCESS_KEY and SECRET_KEY are the clients' access keys. With TLS=true they connect by TLS.

Each line on standard input is one call, a JSON object with `call` (a number), `method` (a public method of
`Clients`) and `arguments`. Calls run side by side. Each line on standard output is one event, a JSON object.
The event `answer N` ends call N: it has `value`, or `error` with the exception's class, code and text. The
events `delivered` and `checked` come from push consumers and transaction checks. The program ends when its
standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

_RESOLUTIONS = {"commit": TransactionResolution.COMMIT, "rollback": TransactionResolution.ROLLBACK}
_SETTINGS_TIMEOUT_SECONDS = 20
_output_lock = threading.Lock()


def emit(event: str, **fields: object) -> None:
    """Write one event."""
    line = json.dumps({"event": event, **fields})
    with _output_lock:
        print(line, flush=True)


class Clients:
    """The clients that the calls made, by name, and all messages that simple consumers received."""

    def __init__(self, address: str) -> None:
        # The client allows a request 3 s: too little for the first ones on a machine that is busy with tests.
        keys = Credentials(os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", ""))
        self._configuration = ClientConfiguration(address, keys, request_timeout=15)
        self._tls = os.environ.get("TLS") == "true"
        self._clients: dict[str, Any] = {}
        self._received: list[Message] = []

    def producer(self, name: str, topics: Sequence[str], check: str | None = None) -> None:
        """Start a producer. `check` is its answer to transaction checks: commit or rollback."""
        checker = None if check is None else _Checker(check)
        self._start(name, Producer(self._configuration, topics, checker, self._tls))

    def send(self, name: str, message: Mapping[str, Any]) -> dict[str, object]:
        """Send a message; return its message id, queue offset and recall handle."""
        return _receipt(self._clients[name].send(_message(message)))

    def send_in_transaction(
        self, name: str, message: Mapping[str, Any], end: str | None
    ) -> dict[str, object]:
        """Send a half message, then commit or roll back; without `end` leave the transaction open."""
        producer = self._clients[name]
        transaction = producer.begin_transaction()
        receipt = producer.send(_message(message), transaction)
        if end == "commit":
            transaction.commit()
        elif end == "rollback":
            transaction.rollback()
        return _receipt(receipt)

    def recall(self, name: str, topic: str, handle: str) -> str:
        """Recall a delayed message; return its message id."""
        return str(self._clients[name].recall_message(topic, handle))

    def simple_consumer(
        self, name: str, group: str, topic: str, wait_s: int, expression: str = "*", sql: bool = False
    ) -> None:
        """Start a simple consumer. `wait_s` is how long the proxy holds an empty receive."""
        subscription = {topic: _filter(expression, sql)}
        consumer = SimpleConsumer(
            self._configuration, group, subscription, await_duration=wait_s, tls_enable=self._tls
        )
        # Unlike a push consumer it does not wait for its settings, without which the proxy fails to receive.
        arrived = consumer._init_settings_event
        self._start(name, consumer)
        if not arrived.wait(_SETTINGS_TIMEOUT_SECONDS):
            raise TimeoutError(f"the proxy sent no settings in {_SETTINGS_TIMEOUT_SECONDS} s")

    def receive(self, name: str, count: int, invisible_s: int) -> list[dict[str, object]]:
        """Receive up to `count` messages; each has an `id` for ack() and change_invisible()."""
        received = []
        for message in self._clients[name].receive(count, invisible_s):
            self._received.append(message)
            received.append({"id": len(self._received) - 1, **_fields(message)})
        return received

    def ack(self, name: str, id: int) -> None:
        """Acknowledge a received message."""
        self._clients[name].ack(self._received[id])

    def change_invisible(self, name: str, id: int, invisible_s: int) -> None:
        """Make a received message visible again `invisible_s` from now; the client keeps the new receipt."""
        self._clients[name].change_invisible_duration(self._received[id], invisible_s)

    def push_consumer(self, name: str, group: str, topic: str, refuse: int = 0) -> None:
        """Start a push consumer that reports failure for the first `refuse` deliveries, then success."""
        listener = _Listener(name, refuse)
        subscription = {topic: FilterExpression()}
        consumer = PushConsumer(self._configuration, group, listener, subscription, tls_enable=self._tls)
        self._start(name, consumer)

    def shut_down(self, name: str) -> None:
        """Shut a client down."""
        self._clients.pop(name).shutdown()

    def _start(self, name: str, client: Any) -> None:
        client.startup()
        self._clients[name] = client


class _Listener(MessageListener):  # type: ignore[misc]  # the package has no types
    def __init__(self, name: str, refuse: int) -> None:
        self._name = name
        self._refuse = refuse
        self._lock = threading.Lock()

    def consume(self, message: Message) -> ConsumeResult:
        with self._lock:
            accepted = self._refuse <= 0
            self._refuse -= 1
            emit("delivered", client=self._name, accepted=accepted, **_fields(message))
        return ConsumeResult.SUCCESS if accepted else ConsumeResult.FAILURE


class _Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self, check: str) -> None:
        self._check = check

    def check(self, message: Message) -> TransactionResolution:
        emit("checked", resolution=self._check, **_fields(message))
        return _RESOLUTIONS[self._check]


def _filter(expression: str, sql: bool) -> FilterExpression:
    return FilterExpression(expression, FilterType.SQL if sql else FilterType.TAG)


def _message(fields: Mapping[str, Any]) -> Message:
    message = Message()
    message.topic = fields["topic"]
    message.body = fields["body"].encode()
    for name in ("tag", "keys", "message_group", "delivery_timestamp"):
        if name in fields:
            setattr(message, name, fields[name])
    for key, value in fields.get("properties", {}).items():
        message.add_property(key, value)
    return message


def _fields(message: Message) -> dict[str, object]:
    return {
        "topic": message.topic,
        "body": message.body.decode(),
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "message_group": message.message_group,
        "attempt": message.delivery_attempt,
        "receipt": message.receipt_handle,
        "corrupted": message.corrupted,
        "received_at_ms": time.time_ns() // 1_000_000,
    }


def _receipt(receipt: Any) -> dict[str, object]:
    return {
        "message_id": receipt.message_id,
        "offset": receipt.offset,
        "recall_handle": receipt.recall_handle,
    }


def _answer(number: int, method: Callable[..., object], arguments: Mapping[str, Any]) -> None:
    # As a main thread has one. If a route arrives at once, the client opens its telemetry stream in this
    # thread, which fails without a loop.
    asyncio.set_event_loop(asyncio.new_event_loop())
    try:
        value = method(**arguments)
    except Exception as error:
        # A start that failed may fail again while the client stops its threads: the first error counts.
        while isinstance(error.__context__, Exception):
            error = error.__context__
        code = getattr(error, "code", None)
        emit(f"answer {number}", error={"class": type(error).__name__, "code": code, "text": str(error)})
    else:
        emit(f"answer {number}", value=value)


def main() -> None:
    """Serve calls until the input ends."""
    clients = Clients(sys.argv[1])
    for line in sys.stdin:
        call = json.loads(line)
        arguments = (call["call"], getattr(clients, call["method"]), call["arguments"])
        threading.Thread(target=_answer, args=arguments, daemon=True).start()
    os._exit(0)  # the threads of clients that were not shut down would keep the process


if __name__ == "__main__":
    main()

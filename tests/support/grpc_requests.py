"""The requests of the transcripts (`grpc_transcript`), valid and invalid, in a fixed order.

They need an empty cluster of one broker, `broker-a`, with the settings of `tests/interop/grpc_fronts.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from rmq_client.admin import Admin
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.codes import RequestCode
from tests.support.broker_requests import request, succeeded
from tests.support.grpc_client import message, resource
from tests.support.grpc_transcript import Recorder, Transcript
from tests.support.raw_client import raw_client

BODY_LIMIT: Final = 4 * 1024 * 1024
_DAY_S: Final = 86_400
_TYPES: Final = {"N": "NORMAL", "F": "FIFO", "D": "DELAY", "X": "TRANSACTION", "R": "NORMAL"}
_GARBAGE: Final = "0 1 2"
# Names that are refused, by what is wrong with them.
_NAMES: Final = {
    "empty": "",
    "blank": " ",
    "space": "a b",
    "dot": "a.b",
    "umlaut": "ä",
    "long": "t" * 128,
    "longer": "t" * 256,
}


async def transcribe(address: str, namesrv: str, broker_port: int) -> Transcript:
    """Send all requests to the proxy at `address`; return the answers."""
    async with Admin(namesrv) as admin:
        for topic, kind in _TYPES.items():
            await admin.create_topic(topic, queues=1, attributes={"+message.type": kind})
    async with raw_client(broker_port) as client:
        for group in (
            SubscriptionGroupConfig(group_name="G"),
            SubscriptionGroupConfig(group_name="GF", consume_message_orderly=True),
        ):
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            succeeded(await client.ask(request(code, group.encode())))
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        recorder = Recorder(channel)
        try:
            for part in (
                _strangers,
                _settings,
                _routes,
                _sends,
                _receives,
                _receipts,
                _transactions,
                _others,
            ):
                await part(recorder)
        finally:
            recorder.close()
    return recorder.transcript


# --- clients ---


def _consumer(group: str, *topics: str, kind: pb.ClientType = pb.SIMPLE_CONSUMER) -> pb.Settings:
    settings = pb.Settings(client_type=kind)
    settings.subscription.group.name = group
    for topic in topics:
        settings.subscription.subscriptions.add().topic.name = topic
    return settings


def _producer(*topics: str) -> pb.Settings:
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.SetInParent()
    for topic in topics:
        settings.publishing.topics.add().name = topic
    return settings


async def _strangers(recorder: Recorder) -> None:
    """Requests without a client id, and of clients that have not reported their settings."""
    for method, asked in _plain_requests():
        await recorder.ask(f"no client id: {method}", method, asked, client="")
    for method in ("Heartbeat", "NotifyClientTermination"):
        asked = getattr(rpc, f"{method}Request")(group=resource("G"))
        await recorder.ask(f"unknown client: {method}", method, asked, client="stranger")
    await recorder.ask("blank client id: Heartbeat", "Heartbeat", rpc.HeartbeatRequest(), client=" ")


def _plain_requests() -> Iterator[tuple[str, Any]]:
    g, n = resource("G"), resource("N")
    yield "QueryRoute", rpc.QueryRouteRequest(topic=n)
    yield "QueryAssignment", rpc.QueryAssignmentRequest(topic=n, group=g)
    yield "Heartbeat", rpc.HeartbeatRequest(group=g)
    yield "NotifyClientTermination", rpc.NotifyClientTerminationRequest(group=g)
    yield "SendMessage", rpc.SendMessageRequest(messages=[message("N")])
    yield "ReceiveMessage", rpc.ReceiveMessageRequest(group=g)
    yield "AckMessage", rpc.AckMessageRequest(group=g, topic=n)
    yield "ChangeInvisibleDuration", rpc.ChangeInvisibleDurationRequest(group=g, topic=n)
    yield "ForwardMessageToDeadLetterQueue", rpc.ForwardMessageToDeadLetterQueueRequest(group=g, topic=n)
    yield "EndTransaction", rpc.EndTransactionRequest(topic=n)
    yield "RecallMessage", rpc.RecallMessageRequest(topic=n)


async def _settings(recorder: Recorder) -> None:
    await recorder.report("settings of nothing", pb.Settings(), client="nothing")
    for name, text in _NAMES.items():
        await recorder.report(f"settings, topic {name}", _producer(text), client=f"p-{name}")
        await recorder.report(f"settings, group {name}", _consumer(text), client=f"c-{name}")
    await recorder.report("settings, system group", _consumer("CID_RMQ_SYS_x"), client="sys")
    await recorder.report("settings of a producer", _producer("N", "F", "D", "X"), client="producer")
    await recorder.report("settings of a producer without topics", _producer(), client="producer-0")
    await recorder.report("settings of a simple consumer", _consumer("G", "N"))
    await recorder.report("settings of a FIFO consumer", _consumer("GF", "F"), client="fifo")
    push = _consumer("G", "N", kind=pb.PUSH_CONSUMER)
    await recorder.report("settings of a push consumer", push, client="push")
    unknown = _consumer("unknown", "N")
    await recorder.report("settings of an unknown group", unknown, client="unknown-group")
    untyped = _consumer("G", kind=pb.CLIENT_TYPE_UNSPECIFIED)
    await recorder.report("settings without a type", untyped, client="untyped")
    bad = _consumer("G", "N")
    bad.subscription.subscriptions[0].expression.type = pb.SQL
    await recorder.report("settings with an empty SQL filter", bad, client="bad-filter")
    for client in ("client", "push", "producer", "untyped"):
        asked = rpc.HeartbeatRequest(group=resource("G"))
        await recorder.ask(f"heartbeat of {client}", "Heartbeat", asked, client=client)
    for name, text in _NAMES.items():
        await recorder.ask(
            f"heartbeat, group {name}", "Heartbeat", rpc.HeartbeatRequest(group=resource(text))
        )


# --- routes ---


def _endpoints() -> pb.Endpoints:
    return pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=8081)])


async def _routes(recorder: Recorder) -> None:
    names = {
        **_NAMES,
        "system": "TBW102",
        "system prefix": "rmq_sys_x",
        "retry": "%RETRY%G",
        "unknown": "none",
    }
    for name, text in names.items():
        asked = rpc.QueryRouteRequest(topic=resource(text), endpoints=_endpoints())
        await recorder.ask(f"route, topic {name}", "QueryRoute", asked)
        assigned = rpc.QueryAssignmentRequest(
            topic=resource(text), group=resource("G"), endpoints=_endpoints()
        )
        await recorder.ask(f"assignment, topic {name}", "QueryAssignment", assigned)
    for topic in _TYPES:
        asked = rpc.QueryRouteRequest(topic=resource(topic), endpoints=_endpoints())
        await recorder.ask(f"route of {topic}", "QueryRoute", asked)
    await recorder.ask("route without endpoints", "QueryRoute", rpc.QueryRouteRequest(topic=resource("N")))
    spaced = pb.Resource(name="N", resource_namespace="ns")
    await recorder.ask("route in a namespace", "QueryRoute", rpc.QueryRouteRequest(topic=spaced))
    groups = {**_NAMES, "system": "CID_RMQ_SYS_x", "unknown": "none", "plain": "G", "fifo": "GF"}
    for name, text in groups.items():
        asked = rpc.QueryAssignmentRequest(topic=resource("N"), group=resource(text), endpoints=_endpoints())
        await recorder.ask(f"assignment, group {name}", "QueryAssignment", asked)


# --- messages ---


def _many(count: int) -> pb.Message:
    made = message("N")
    for number in range(count):
        made.user_properties[f"k{number}"] = "v"
    return made


def _with(key: str, value: str) -> pb.Message:
    made = message("N")
    made.user_properties[key] = value
    return made


def _due(topic: str, seconds: int) -> pb.Message:
    made = message(topic)
    made.system_properties.delivery_timestamp.FromSeconds(seconds)
    return made


def _single_messages() -> dict[str, pb.Message]:
    now = int(time.time())
    recovered = message("X", message_type=pb.TRANSACTION)
    recovered.system_properties.orphaned_transaction_recovery_duration.FromSeconds(_DAY_S)
    return {
        "plain": message("N", tag="t", keys=["a", "b"]),
        "declared normal": message("N", message_type=pb.NORMAL),
        "body empty": message("N", b""),
        "body of 4 MiB": message("N", bytes(BODY_LIMIT)),
        "body over 4 MiB": message("N", bytes(BODY_LIMIT + 1)),
        "no id": message("N", message_id=""),
        "blank id": message("N", message_id=" "),
        "tag blank": message("N", tag=" "),
        "tag with a bar": message("N", tag="a|b"),
        "tag with a line feed": message("N", tag="a\nb"),
        "key empty": message("N", keys=[""]),
        "key blank": message("N", keys=[" "]),
        "key with a line feed": message("N", keys=["a\nb"]),
        "key with a space": message("N", keys=["a b"]),
        "property of the system": _with("TAGS", "v"),
        "property without a name": _with("", "v"),
        "property without a value": _with("k", ""),
        "property name with a control character": _with("a\x01", "v"),
        "property value with a control character": _with("a", "v\x02"),
        "property with a non-ASCII name": _with("ü", "ö"),
        "128 properties": _many(128),
        "129 properties": _many(129),
        "properties of 16 KiB": _with("k", "v" * 16_383),
        "properties over 16 KiB": _with("k", "v" * 16_384),
        "group in a normal topic": message("N", message_group="g"),
        "group": message("F", message_group="g"),
        "group blank": message("F", message_group=" "),
        "group of 63 bytes": message("F", message_group="g" * 63),
        "group of 64 bytes": message("F", message_group="g" * 64),
        "group with a line feed": message("F", message_group="a\nb"),
        "no group in a FIFO topic": message("F"),
        "declared FIFO without a group": message("F", message_type=pb.FIFO),
        "due soon": _due("D", now + 3600),
        "due in two days": _due("D", now + 2 * _DAY_S),
        "due in the past": _due("D", now - 3600),
        "due at the epoch": _due("D", 0),
        "no time in a delay topic": message("D"),
        "time in a normal topic": _due("N", now + 3600),
        "declared a transaction": message("N", message_type=pb.TRANSACTION),
        "not declared a transaction": message("X"),
        "recovery after a day": recovered,
        "declared LITE": message("N", message_type=5),
        "compressed": message("N", b"no gzip", body_encoding=pb.GZIP),
        "trace context": message("N", trace_context="00-1-2-01"),
        "trace context with a line feed": message("N", trace_context="a\nb"),
        "queue 7": message("N", queue_id=7),
        "attempt 3": message("N", delivery_attempt=3),
        "namespace": pb.Message(
            topic=pb.Resource(name="N", resource_namespace="ns"),
            body=b"x",
            system_properties=pb.SystemProperties(message_id="01"),
        ),
        "unknown topic": message("none"),
        "system topic": message("TBW102"),
    }


async def _sends(recorder: Recorder) -> None:
    async def send(name: str, *messages: pb.Message) -> None:
        asked = rpc.SendMessageRequest(messages=messages)
        await recorder.ask(f"send: {name}", "SendMessage", asked, client="producer")

    await send("nothing")
    for name, text in _NAMES.items():
        await send(f"topic {name}", message(text))
    for name, made in _single_messages().items():
        await send(name, made)
    await send("batch", *(message("N", message_id=f"0{number}") for number in range(3)))
    await send("batch of two topics", message("N"), message("R"))
    await send("batch with a bad message", message("N"), message("N", tag="a|b"))
    await send("batch of one group", *(message("F", message_id=f"1{n}", message_group="g") for n in range(2)))
    await send("batch with a delay", *(_due("D", int(time.time()) + 3600) for _ in range(2)))
    await send("batch of transactions", *(message("X", message_type=pb.TRANSACTION) for _ in range(2)))
    await send("batch, second of another type", message("N"), message("N", message_group="g"))
    await send("batch over 4 MiB", *(message("N", bytes(BODY_LIMIT // 2)) for _ in range(3)))


# --- receives ---


def receive_request(group: str, topic: str, **fields: Any) -> rpc.ReceiveMessageRequest:
    """A receive of one message, invisible for 30 s, held for a second at most."""
    wanted: dict[str, Any] = {
        "invisible_s": 30,
        "poll_ms": 1000,
        "batch_size": 1,
        "broker": "broker-a",
        **fields,
    }
    asked = rpc.ReceiveMessageRequest(
        batch_size=wanted["batch_size"], auto_renew=wanted.get("auto_renew", False)
    )
    asked.group.name = group
    asked.message_queue.topic.name = topic
    asked.message_queue.broker.name = wanted["broker"]
    asked.filter_expression.CopyFrom(wanted.get("filter", pb.FilterExpression(type=pb.TAG, expression="*")))
    if wanted["invisible_s"] is not None:
        asked.invisible_duration.FromMilliseconds(int(wanted["invisible_s"] * 1000))
    if wanted["poll_ms"] is not None:
        asked.long_polling_timeout.FromMilliseconds(wanted["poll_ms"])
    return asked


async def _receives(recorder: Recorder) -> None:
    async def receive(name: str, asked: rpc.ReceiveMessageRequest, **how: Any) -> None:
        await recorder.ask(f"receive: {name}", "ReceiveMessage", asked, **how)

    for name, text in _NAMES.items():
        await receive(f"topic {name}", receive_request("G", text))
        await receive(f"group {name}", receive_request(text, "N"))
    await receive("system topic", receive_request("G", "TBW102"))
    await receive("system group", receive_request("CID_RMQ_SYS_x", "N"))
    await receive("unknown topic", receive_request("G", "none"))
    for name, seconds in {"0": 0, "0.5 s": 0.5, "12 h": 43_200, "over 12 h": 43_201, "missing": None}.items():
        await receive(f"invisible time {name}", receive_request("G", "R", invisible_s=seconds))
    filters = {
        "unspecified": pb.FilterExpression(expression="*"),
        "SQL empty": pb.FilterExpression(type=pb.SQL),
        "SQL wrong": pb.FilterExpression(type=pb.SQL, expression="a >"),
        "tag empty": pb.FilterExpression(type=pb.TAG),
        "tag bars": pb.FilterExpression(type=pb.TAG, expression="||"),
    }
    for name, expression in filters.items():
        await receive(f"filter {name}", receive_request("G", "R", filter=expression))
    await receive("unknown broker", receive_request("G", "R", broker="none"))
    await receive("no broker", receive_request("G", "R", broker=""))
    for size in (0, -1, 1000):
        await receive(f"batch of {size}", receive_request("G", "R", batch_size=size))
    await receive("renewed", receive_request("G", "R", auto_renew=True, invisible_s=None), client="push")
    await receive("unknown group", receive_request("none", "R"), client="unknown-group")
    for version in ("5.0.2", "5.2.0"):
        late = receive_request("G", "R", poll_ms=5000)
        headers = [("x-mq-client-version", version)]
        await receive(f"deadline too near, {version}", late, headers=headers, deadline=0.9)


# --- receipts ---


async def _received(
    recorder: Recorder, name: str, group: str = "G", topic: str = "R", **how: Any
) -> pb.Message:
    """Send a message to a topic, and receive it."""
    sent = rpc.SendMessageRequest(messages=[message(topic, name.encode(), message_id=f"01{name}", **how)])
    await recorder.ask(f"{name}: sent", "SendMessage", sent, client="producer")
    client = "fifo" if group == "GF" else "client"
    responses = await recorder.ask(
        f"{name}: received", "ReceiveMessage", receive_request(group, topic, invisible_s=60), client=client
    )
    (found,) = [each.message for each in responses if each.HasField("message")]
    return found


def _acknowledgement(group: str, topic: str, *entries: tuple[str, str]) -> rpc.AckMessageRequest:
    asked = rpc.AckMessageRequest(group=resource(group), topic=resource(topic))
    for message_id, handle in entries:
        asked.entries.add(message_id=message_id, receipt_handle=handle)
    return asked


def _part(handle: str, number: int, value: str) -> str:
    parts = handle.split(" ")
    parts[number] = value
    return " ".join(parts)


def _forged(handle: str) -> dict[str, str]:
    """Return receipt handles that are wrong, made from a valid one."""
    return {
        "empty": "",
        "garbage": "garbage",
        "too few parts": _GARBAGE,
        "letters": _part(handle, 0, "x"),
        "expired": _part(handle, 1, "1000"),
        "unknown broker": _part(handle, 5, "none"),
        "unknown queue": _part(handle, 6, "9"),
        "negative offset": _part(handle, 7, "-5"),
        "offset not reached": _part(handle, 7, "99999"),
        "unknown revive queue": _part(handle, 3, "99"),
        "cut off": handle.rsplit(" ", 1)[0],
    }


async def _receipts(recorder: Recorder) -> None:
    found = await _received(recorder, "acknowledged")
    handle, message_id = found.system_properties.receipt_handle, found.system_properties.message_id
    for name, text in _NAMES.items():
        await recorder.ask(
            f"ack: topic {name}", "AckMessage", _acknowledgement("G", text, (message_id, handle))
        )
        await recorder.ask(
            f"ack: group {name}", "AckMessage", _acknowledgement(text, "R", (message_id, handle))
        )
    await recorder.ask("ack: nothing", "AckMessage", _acknowledgement("G", "R"))
    changes: dict[str, Callable[[str], Any]] = {
        "AckMessage": lambda forged: _acknowledgement("G", "R", (message_id, forged)),
        "ChangeInvisibleDuration": lambda forged: _change(message_id, forged, 60_000),
        "ForwardMessageToDeadLetterQueue": lambda forged: _forward(message_id, forged),
    }
    for method, make in changes.items():
        for name, forged in _forged(handle).items():
            await recorder.ask(f"{method}: handle {name}", method, make(forged))
    both = _acknowledgement("G", "R", (message_id, handle), ("none", "garbage"))
    await recorder.ask("ack: a good one and a bad one", "AckMessage", both)
    again = _acknowledgement("G", "R", (message_id, handle))
    await recorder.ask("ack: again", "AckMessage", again)
    await recorder.ask("ack: other id", "AckMessage", _acknowledgement("G", "R", ("other", handle)))
    await recorder.ask(
        "ack: unknown topic", "AckMessage", _acknowledgement("G", "none", (message_id, handle))
    )
    await recorder.ask(
        "ack: unknown group", "AckMessage", _acknowledgement("none", "R", (message_id, handle))
    )
    await _changed(recorder)
    found = await _received(recorder, "dead")
    handle, message_id = found.system_properties.receipt_handle, found.system_properties.message_id
    for name in ("forward", "forward again"):
        await recorder.ask(name, "ForwardMessageToDeadLetterQueue", _forward(message_id, handle))
    await _received(recorder, "in order", "GF", "F", message_group="g")


def _change(message_id: str, handle: str, invisible_ms: int) -> rpc.ChangeInvisibleDurationRequest:
    asked = rpc.ChangeInvisibleDurationRequest(
        group=resource("G"), topic=resource("R"), receipt_handle=handle, message_id=message_id
    )
    asked.invisible_duration.FromMilliseconds(invisible_ms)
    return asked


def _forward(message_id: str, handle: str) -> rpc.ForwardMessageToDeadLetterQueueRequest:
    return rpc.ForwardMessageToDeadLetterQueueRequest(
        group=resource("G"), topic=resource("R"), receipt_handle=handle, message_id=message_id
    )


async def _changed(recorder: Recorder) -> None:
    found = await _received(recorder, "changed")
    handle, message_id = found.system_properties.receipt_handle, found.system_properties.message_id
    for name, millis in {"negative": -1, "over 12 h": 43_201_000}.items():
        await recorder.ask(
            f"change: time {name}", "ChangeInvisibleDuration", _change(message_id, handle, millis)
        )
    (answer,) = await recorder.ask(
        "change: once", "ChangeInvisibleDuration", _change(message_id, handle, 60_000)
    )
    await recorder.ask(
        "change: the old handle", "ChangeInvisibleDuration", _change(message_id, handle, 60_000)
    )
    ended = _acknowledgement("G", "R", (message_id, answer.receipt_handle))
    await recorder.ask("change: acknowledged", "AckMessage", ended)


# --- transactions and recalls ---


async def _transactions(recorder: Recorder) -> None:
    sent = rpc.SendMessageRequest(messages=[message("X", message_type=pb.TRANSACTION)])
    (answer,) = await recorder.ask("transaction: sent", "SendMessage", sent, client="producer")
    good = answer.entries[0].transaction_id if answer.entries else ""

    async def end(name: str, topic: str, transaction_id: str, resolution: pb.TransactionResolution) -> None:
        asked = rpc.EndTransactionRequest(
            topic=resource(topic), message_id="01ID", transaction_id=transaction_id, resolution=resolution
        )
        await recorder.ask(f"transaction: {name}", "EndTransaction", asked, client="producer")

    for name, text in _NAMES.items():
        await end(f"topic {name}", text, good, pb.COMMIT)
    await end("no id", "X", "", pb.COMMIT)
    await end("unknown id", "X", "none", pb.COMMIT)
    await end("undecided", "X", good, pb.TRANSACTION_RESOLUTION_UNSPECIFIED)
    await end("committed", "X", good, pb.COMMIT)

    due = rpc.SendMessageRequest(messages=[_due("D", int(time.time()) + 3600)])
    (answer,) = await recorder.ask("recall: sent", "SendMessage", due, client="producer")
    handle = answer.entries[0].recall_handle if answer.entries else ""

    async def recall(name: str, topic: str, recalled: str) -> None:
        asked = rpc.RecallMessageRequest(topic=resource(topic), recall_handle=recalled)
        await recorder.ask(f"recall: {name}", "RecallMessage", asked, client="producer")

    for name, text in _NAMES.items():
        await recall(f"topic {name}", text, handle)
    for name, text in {"empty": "", "garbage": "garbage", "base64": "YWJj"}.items():
        await recall(f"handle {name}", "D", text)
    await recall("in a normal topic", "N", handle)
    await recall("in an unknown topic", "none", handle)
    await recall("once", "D", handle)


async def _others(recorder: Recorder) -> None:
    queue = pb.MessageQueue(topic=resource("R"), id=0, broker=pb.Broker(name="broker-a"))
    group = resource("G")
    methods: dict[str, Any] = {
        "PullMessage": rpc.PullMessageRequest(group=group, message_queue=queue, batch_size=1),
        "GetOffset": rpc.GetOffsetRequest(group=group, message_queue=queue),
        "UpdateOffset": rpc.UpdateOffsetRequest(group=group, message_queue=queue),
        "QueryOffset": rpc.QueryOffsetRequest(message_queue=queue, query_offset_policy=pb.END),
    }
    for method, asked in methods.items():
        await recorder.ask(f"offsets: {method}", method, asked)
    for name, text in {**_NAMES, "own": "G"}.items():
        asked = rpc.NotifyClientTerminationRequest(group=resource(text))
        client = "client" if name == "own" else f"leaves-{name}"
        if name != "own":
            await recorder.report(f"leaves, {name}: settings", _consumer("G", "N"), client=client)
        await recorder.ask(f"leaves, {name}", "NotifyClientTermination", asked, client=client)
        await recorder.ask(f"leaves, {name}: again", "NotifyClientTermination", asked, client=client)
    await recorder.ask(
        "leaves, producer", "NotifyClientTermination", rpc.NotifyClientTerminationRequest(), client="producer"
    )

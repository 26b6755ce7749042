"""The requests of the transcripts (`grpc_transcript`), valid and invalid, in a fixed order.

They need an empty cluster of one broker, `broker-a`, with the settings of `tests/interop/grpc_fronts.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import grpc

from rmq_client.admin import Admin
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.codes import RequestCode
from tests.support.broker_requests import request, succeeded
from tests.support.grpc_client import message, resource
from tests.support.grpc_messages import BODY_LIMIT, NAMES, due, single_messages
from tests.support.grpc_receives import receipts, receives
from tests.support.grpc_transcript import Recorder, Transcript
from tests.support.raw_client import raw_client

_TYPES: Final = {"N": "NORMAL", "F": "FIFO", "D": "DELAY", "X": "TRANSACTION", "R": "NORMAL"}


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
                receives,
                receipts,
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
    for name, text in NAMES.items():
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
    for name, text in NAMES.items():
        await recorder.ask(
            f"heartbeat, group {name}", "Heartbeat", rpc.HeartbeatRequest(group=resource(text))
        )


# --- routes ---


def _endpoints() -> pb.Endpoints:
    return pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="127.0.0.1", port=8081)])


async def _routes(recorder: Recorder) -> None:
    names = {
        **NAMES,
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
    groups = {**NAMES, "system": "CID_RMQ_SYS_x", "unknown": "none", "plain": "G", "fifo": "GF"}
    for name, text in groups.items():
        asked = rpc.QueryAssignmentRequest(topic=resource("N"), group=resource(text), endpoints=_endpoints())
        await recorder.ask(f"assignment, group {name}", "QueryAssignment", asked)


# --- messages ---


async def _sends(recorder: Recorder) -> None:
    async def send(name: str, *messages: pb.Message) -> None:
        asked = rpc.SendMessageRequest(messages=messages)
        await recorder.ask(f"send: {name}", "SendMessage", asked, client="producer")

    await send("nothing")
    for name, text in NAMES.items():
        await send(f"topic {name}", message(text))
    for name, made in single_messages().items():
        await send(name, made)
    await send("batch", *(message("N", message_id=f"0{number}") for number in range(3)))
    await send("batch of two topics", message("N"), message("R"))
    await send("batch with a bad message", message("N"), message("N", tag="a|b"))
    await send("batch of one group", *(message("F", message_id=f"1{n}", message_group="g") for n in range(2)))
    await send("batch with a delay", *(due("D", int(time.time()) + 3600) for _ in range(2)))
    await send("batch of transactions", *(message("X", message_type=pb.TRANSACTION) for _ in range(2)))
    await send("batch, second of another type", message("N"), message("N", message_group="g"))
    await send("batch over 4 MiB", *(message("N", bytes(BODY_LIMIT // 2)) for _ in range(3)))


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

    for name, text in NAMES.items():
        await end(f"topic {name}", text, good, pb.COMMIT)
    await end("no id", "X", "", pb.COMMIT)
    await end("unknown id", "X", "none", pb.COMMIT)
    await end("undecided", "X", good, pb.TRANSACTION_RESOLUTION_UNSPECIFIED)
    await end("committed", "X", good, pb.COMMIT)

    delayed = rpc.SendMessageRequest(messages=[due("D", int(time.time()) + 3600)])
    (answer,) = await recorder.ask("recall: sent", "SendMessage", delayed, client="producer")
    handle = answer.entries[0].recall_handle if answer.entries else ""

    async def recall(name: str, topic: str, recalled: str) -> None:
        asked = rpc.RecallMessageRequest(topic=resource(topic), recall_handle=recalled)
        await recorder.ask(f"recall: {name}", "RecallMessage", asked, client="producer")

    for name, text in NAMES.items():
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
    for name, text in {**NAMES, "own": "G"}.items():
        asked = rpc.NotifyClientTerminationRequest(group=resource(text))
        client = "client" if name == "own" else f"leaves-{name}"
        if name != "own":
            await recorder.report(f"leaves, {name}: settings", _consumer("G", "N"), client=client)
        await recorder.ask(f"leaves, {name}", "NotifyClientTermination", asked, client=client)
        await recorder.ask(f"leaves, {name}: again", "NotifyClientTermination", asked, client=client)
    await recorder.ask(
        "leaves, producer", "NotifyClientTermination", rpc.NotifyClientTerminationRequest(), client="producer"
    )

"""The requests of consumers in the transcripts (`grpc_requests`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from tests.support.grpc_client import message, resource
from tests.support.grpc_messages import NAMES
from tests.support.grpc_transcript import Recorder

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


async def receives(recorder: Recorder) -> None:
    """Receive from an empty topic, and from impossible ones."""

    async def receive(name: str, asked: rpc.ReceiveMessageRequest, **how: Any) -> None:
        await recorder.ask(f"receive: {name}", "ReceiveMessage", asked, **how)

    for name, text in NAMES.items():
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
    found: list[pb.Message] = [each.message for each in responses if each.HasField("message")]
    assert len(found) == 1, f"{name}: {responses}"
    return found[0]


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
        "too few parts": "0 1 2",
        "letters": _part(handle, 0, "x"),
        "expired": _part(handle, 1, "1000"),
        "unknown broker": _part(handle, 5, "none"),
        "unknown queue": _part(handle, 6, "9"),
        "negative offset": _part(handle, 7, "-5"),
        "offset not reached": _part(handle, 7, "99999"),
        "unknown revive queue": _part(handle, 3, "99"),
        "cut off": handle.rsplit(" ", 1)[0],
    }


async def receipts(recorder: Recorder) -> None:
    """Acknowledge, change and forward, with valid handles and others."""
    found = await _received(recorder, "acknowledged")
    handle, message_id = found.system_properties.receipt_handle, found.system_properties.message_id
    for name, text in NAMES.items():
        await recorder.ask(
            f"ack: topic {name}", "AckMessage", _acknowledgement("G", text, (message_id, handle))
        )
        await recorder.ask(
            f"ack: group {name}", "AckMessage", _acknowledgement(text, "R", (message_id, handle))
        )
    await recorder.ask("ack: nothing", "AckMessage", _acknowledgement("G", "R"))
    changes: dict[str, Callable[[str], Any]] = {
        "ChangeInvisibleDuration": lambda forged: _change(message_id, forged, 60_000),
        "ForwardMessageToDeadLetterQueue": lambda forged: _forward(message_id, forged),
        "AckMessage": lambda forged: _acknowledgement("G", "R", (message_id, forged)),
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

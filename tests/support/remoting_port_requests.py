"""Requests to a proxy's remoting port, valid and invalid, and its answers as JSON.

A value that differs between runs is a star. `tests/data/remoting_port_answers.json` has the answers of
Apache's proxy 5.3.3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from rmq_client.admin import Admin
from rmq_remoting.bodies.checks import CheckClientRequestBody
from rmq_remoting.bodies.fastjson_reader import loads
from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.bodies.lock import LockBatchRequestBody
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.message import Message
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_requests import heartbeat, pull, request, send, send_batch
from tests.support.pop_requests import ack, ack_batch, hide, notify, pop, popped, query_assignment
from tests.support.proxied_requests import to_broker
from tests.support.raw_client import RawClient, raw_client

BROKER: Final = "broker-a"
ANY: Final = "*"
Answer = dict[str, Any]
Transcript = dict[str, Answer]

_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")
# Fields that no two runs share.
_VARYING: Final = frozenset(
    {
        "brokerAddrs",
        "clientAddr",
        "msgId",
        "popTime",
        "recallHandle",
        "reviveQid",
        "startOffsetInfo",
        "msgOffsetInfo",
        "transactionId",
        "version",
    }
)
_TYPES: Final = {"T": "NORMAL", "D": "DELAY", "X": "TRANSACTION", "P": "NORMAL"}
_GROUP: Final = "G"
# Its messages are popped from the broker itself.
_DIRECT_GROUP: Final = "H"


class _Recorder:
    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._asked: set[int] = set()
        self.transcript: Transcript = {}

    async def ask(
        self, name: str, command: RemotingCommand, read: Callable[[bytes], object] | None = None
    ) -> RemotingCommand | None:
        """Send a request, and keep its answer; None if there was none in five seconds."""
        self._client.send(command)
        try:
            answer = await self._next_answer()
        except TimeoutError:
            self.transcript[name] = {"answer": "none"}
            return None
        finally:
            self._asked.add(command.opaque)
        body: object = None
        if answer.body:
            body = (read or _json)(answer.body)
        self.transcript[name] = {
            "code": answer.code,
            "remark": _ADDRESS.sub(f"127.0.0.1:{ANY}", answer.remark) if answer.remark else answer.remark,
            "fields": _steady(dict(sorted(answer.ext_fields.items()))),
            "body": body,
        }
        if answer.opaque != command.opaque:
            self.transcript[name]["answer"] = "with another number"
        return answer

    async def _next_answer(self) -> RemotingCommand:
        """Skip requests of brokers, and late answers."""
        while not (received := await self._client.receive()).is_response or received.opaque in self._asked:
            pass
        return received


def _json(body: bytes) -> object:
    return _steady(loads(body))


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: ANY if key in _VARYING else _steady(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted((_steady(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    return value


def _bodies(body: bytes) -> list[str]:
    return [each.body.decode() for each in decode_messages(body)]


async def transcribe(port: int, namesrv_address: str, broker_port: int) -> Transcript:
    """Send all requests to the port of a fresh cluster with the broker `broker-a`; return the answers."""
    async with Admin(namesrv_address) as admin:
        for topic, kind in _TYPES.items():
            await admin.create_topic(topic, queues=1, attributes={"+message.type": kind})
        for group in (_GROUP, _DIRECT_GROUP):
            await admin.create_group(group)
    async with raw_client(port) as client, raw_client(broker_port) as broker:
        recorder = _Recorder(client)
        for part in (_routes, _sends, _offsets, _pulls, _members, _locks):
            await part(recorder)
        await _pops(recorder, broker)
        await _others(recorder)
    return recorder.transcript


async def _routes(recorder: _Recorder) -> None:
    route = Code.GET_ROUTEINFO_BY_TOPIC
    await recorder.ask("route", request(route, topic="T", acceptStandardJsonOnly=True))
    await recorder.ask("route, unknown topic", request(route, topic="absent", acceptStandardJsonOnly=True))
    await recorder.ask("route without a topic", request(route))


async def _sends(recorder: _Recorder) -> None:
    in_json = Serialization.JSON
    await recorder.ask("send", to_broker(send("T", b"1")))
    await recorder.ask("send with a JSON header", to_broker(send("T", b"2", serialization=in_json)))
    await recorder.ask("send, long names", to_broker(send("T", b"3", code=Code.SEND_MESSAGE)))
    batch = send_batch("T", [Message("T", b"4"), Message("T", b"5")])
    await recorder.ask("send, batch", to_broker(batch))
    await recorder.ask("send without a broker", send("T"))
    await recorder.ask("send without a broker, long names", send("T", code=Code.SEND_MESSAGE))
    await recorder.ask("send, unknown broker", to_broker(send("T"), "nobody"))
    await recorder.ask("send, unknown topic", to_broker(send("absent", default_topic="absent")))
    await recorder.ask("send, unknown queue", to_broker(send("T", queue_id=9)))
    await recorder.ask("send, a delay to a normal topic", to_broker(send("T", properties={"DELAY": "1"})))
    await recorder.ask("send, no delay to a delay topic", to_broker(send("D")))
    await recorder.ask("send, a delay", to_broker(send("D", properties={"TIMER_DELAY_MS": "60000"})))
    half = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "K"}
    await recorder.ask(
        "send, half message", to_broker(send("X", properties=half, sys_flag=4, serialization=in_json))
    )
    await recorder.ask("send without a body", to_broker(send("T", b"")))
    recall = request(Code.RECALL_MESSAGE, topic="D", recallHandle="no handle", producerGroup="p")
    await recorder.ask("recall, no handle", to_broker(recall))
    recall = request(Code.RECALL_MESSAGE, topic="T", recallHandle="no handle", producerGroup="p")
    await recorder.ask("recall from a normal topic", to_broker(recall))


async def _offsets(recorder: _Recorder) -> None:
    queue = {"topic": "T", "queueId": 0}
    await recorder.ask("maximum offset", to_broker(request(Code.GET_MAX_OFFSET, **queue)))
    await recorder.ask("maximum offset without a broker", request(Code.GET_MAX_OFFSET, **queue))
    unknown = to_broker(request(Code.GET_MAX_OFFSET, **queue), "nobody")
    await recorder.ask("maximum offset, unknown broker", unknown)
    await recorder.ask("maximum offset without a topic", to_broker(request(Code.GET_MAX_OFFSET, queueId=0)))
    await recorder.ask("minimum offset", to_broker(request(Code.GET_MIN_OFFSET, **queue)))
    search = request(Code.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=0, **queue)
    await recorder.ask("offset of a time", to_broker(search))
    of_group = {"consumerGroup": _GROUP, **queue}
    query = to_broker(request(Code.QUERY_CONSUMER_OFFSET, **of_group))
    await recorder.ask("offset of a group before its commit", query)
    commit = to_broker(request(Code.UPDATE_CONSUMER_OFFSET, commitOffset=1, **of_group))
    await recorder.ask("commit", commit)
    query = to_broker(request(Code.QUERY_CONSUMER_OFFSET, **of_group))
    await recorder.ask("offset of a group", query)


async def _pulls(recorder: _Recorder) -> None:
    await recorder.ask("pull", to_broker(pull("T", _GROUP, offset=1)), _bodies)
    await recorder.ask("pull at the end", to_broker(pull("T", _GROUP, offset=5)))
    await recorder.ask("pull beyond the end", to_broker(pull("T", _GROUP, offset=99)))
    await recorder.ask("pull, held", to_broker(pull("T", _GROUP, offset=5, suspend_ms=100)))
    await recorder.ask("pull, unknown topic", to_broker(pull("absent", _GROUP)))
    await recorder.ask("pull without a broker", pull("T", _GROUP))
    await recorder.ask("pull without a subscription", to_broker(pull("T", "none", subscription=None)))


async def _members(recorder: _Recorder) -> None:
    beat = heartbeat("client", _GROUP, {"T": "*"}, producer_groups=["p"])
    await recorder.ask("heartbeat", beat)
    await recorder.ask("heartbeat again", heartbeat("client", _GROUP, {"T": "*"}, producer_groups=["p"]))
    pulled = to_broker(pull("T", _GROUP, offset=3, subscription=None))
    await recorder.ask("pull by the subscription of the heartbeat", pulled, _bodies)
    members, connections = Code.GET_CONSUMER_LIST_BY_GROUP, Code.GET_CONSUMER_CONNECTION_LIST
    await recorder.ask("members", to_broker(request(members, consumerGroup=_GROUP)))
    await recorder.ask("members, without a broker", request(members, consumerGroup=_GROUP))
    await recorder.ask("members of an unknown group", to_broker(request(members, consumerGroup="none")))
    await recorder.ask("connections", to_broker(request(connections, consumerGroup=_GROUP)))
    unknown = to_broker(request(connections, consumerGroup="none"))
    await recorder.ask("connections of an unknown group", unknown)
    data = SubscriptionData(topic="T", sub_string="a >", expression_type="SQL92")
    check = CheckClientRequestBody(client_id="client", group=_GROUP, subscription_data=data)
    await recorder.ask("check of a wrong filter", request(Code.CHECK_CLIENT_CONFIG, check.encode()))
    await recorder.ask("check of nothing", request(Code.CHECK_CLIENT_CONFIG, b"{}"))
    await recorder.ask("assignment", query_assignment("T", _GROUP))
    leave = request(Code.UNREGISTER_CLIENT, clientID="client", consumerGroup=_GROUP, producerGroup="p")
    await recorder.ask("unregister", leave)
    leave = request(Code.UNREGISTER_CLIENT, clientID="client", consumerGroup=_GROUP, producerGroup="p")
    await recorder.ask("unregister again", leave)


async def _locks(recorder: _Recorder) -> None:
    def locking(code: Code, queues: Sequence[MessageQueue]) -> RemotingCommand:
        body = LockBatchRequestBody(client_id="client", consumer_group=_GROUP, mq_set=list(queues))
        return RemotingCommand.request(code, body=body.encode())

    queue = MessageQueue("T", BROKER, 0)
    await recorder.ask("lock", locking(Code.LOCK_BATCH_MQ, [queue]))
    await recorder.ask("lock of nothing", locking(Code.LOCK_BATCH_MQ, []))
    unknown = MessageQueue("T", "nobody", 0)
    await recorder.ask("lock, unknown broker", locking(Code.LOCK_BATCH_MQ, [unknown]))
    await recorder.ask("unlock", locking(Code.UNLOCK_BATCH_MQ, [queue]))
    await recorder.ask("unlock of nothing", locking(Code.UNLOCK_BATCH_MQ, []))


async def _pops(recorder: _Recorder, broker: RawClient) -> None:
    await recorder.ask("pop of nothing", to_broker(pop("P", _GROUP)))
    for number in range(3):
        await recorder.ask(f"send to pop {number}", to_broker(send("P", b"%d" % number)))
    await recorder.ask("pop", to_broker(pop("P", _GROUP)), _bodies)
    group = _DIRECT_GROUP
    first, second, third = popped(await broker.ask(pop("P", group)))
    await recorder.ask("ack", to_broker(ack(first, group)))
    await recorder.ask("ack without a broker", ack(first, group))
    await recorder.ask("ack of no receipt", to_broker(ack(first, group, receipt="nothing")))
    await recorder.ask("change of an invisible time", to_broker(hide(second, 60_000, group)))
    await recorder.ask("batch of acknowledgements", ack_batch([third], group))
    await recorder.ask("notification", to_broker(notify("P", _GROUP)))
    await recorder.ask("pop without a broker", pop("P", _GROUP))
    await recorder.ask("pop, unknown topic", to_broker(pop("absent", _GROUP)))


async def _others(recorder: _Recorder) -> None:
    end = {"producerGroup": "p", "commitOrRollback": 8, "tranStateTableOffset": 0, "commitLogOffset": 0}
    unknown = request(Code.END_TRANSACTION, topic="X", msgId="K", transactionId="K", **end)
    await recorder.ask("end of an unknown transaction", to_broker(unknown))
    back = request(Code.CONSUMER_SEND_MSG_BACK, group=_GROUP, offset=1 << 40, delayLevel=1)
    await recorder.ask("send back of no message", to_broker(back))
    await recorder.ask("send back without a broker", back)
    await recorder.ask("creation of a topic", request(Code.UPDATE_AND_CREATE_TOPIC, topic="N"))
    await recorder.ask("unknown request", request(105_000))

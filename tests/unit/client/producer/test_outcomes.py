"""Unknown outcomes of failed calls with more than one step."""

from __future__ import annotations

import pytest

from rmq_client import Message, NoReply, NotRunning, Producer, Rejected, TimedOut, TopicNotFound
from rmq_client.errors import ClientError
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message import MessageExt
from rmq_remoting.recall_handle import RecallHandle
from tests.support.fake_cluster import FakeCluster, Fault
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture

_REPLIES = "DefaultCluster_REPLY_TOPIC"
_REPLY = RequestCode.SEND_REPLY_MESSAGE_V2


@pytest.mark.parametrize("kind", [ClientError, NotRunning, TimedOut, TopicNotFound])
def test_the_outcome_of_an_error_is_known_by_default(kind: type[ClientError]) -> None:
    assert not kind("why").is_outcome_unknown


async def test_the_outcome_of_a_request_without_a_reply_is_unknown() -> None:
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        with pytest.raises(NoReply) as caught:
            await producer.request(Message("T", b"ping"), timeout_seconds=0.1)
        assert caught.value.is_outcome_unknown
        assert cluster.broker.bodies == [b"ping"]


async def test_the_outcome_of_an_unanswered_recall_is_unknown() -> None:
    handle = RecallHandle("T", "broker-a", 1_700_000_000_001, "K").encode()
    async with (
        FakeCluster({"broker-a": {"T": 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        await producer.send(Message("T", b"first"))
        cluster.broker.order(RequestCode.RECALL_MESSAGE, Fault(silent=True))
        with pytest.raises(TimedOut, match=r"did not answer within 0\.1 s") as caught:
            await producer.recall(handle, timeout_seconds=0.1)
        assert caught.value.is_outcome_unknown


def _request(broker_name: str) -> MessageExt:
    request = MessageExt("T", b"ping")
    request.broker_name = broker_name
    request.properties.update(CLUSTER="DefaultCluster", CORRELATION_ID="1", REPLY_TO_CLIENT="somebody")
    return request


@pytest.mark.parametrize(
    ("first", "is_unknown"),
    [(Fault(silent=True), True), (Fault(code=ResponseCode.SYSTEM_BUSY), False)],
    ids=["silent", "refused"],
)
async def test_the_outcome_of_a_reply_stays_unknown_after_a_later_refusal(
    first: Fault, is_unknown: bool
) -> None:
    async with (
        FakeCluster({"broker-a": {_REPLIES: 1}, "broker-b": {_REPLIES: 1}}) as cluster,
        Producer(cluster.address, group="g") as producer,
    ):
        cluster.brokers["broker-a"].order(_REPLY, first)
        for broker in cluster.brokers.values():
            broker.order(_REPLY, Fault(code=ResponseCode.MESSAGE_ILLEGAL, remark="bad"))
        with pytest.raises(Rejected, match="bad") as caught:
            await producer.reply(_request("broker-a"), b"pong", timeout_seconds=0.4)
        assert caught.value.is_outcome_unknown is is_unknown

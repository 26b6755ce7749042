"""Locking queues over the wire (codes 41 and 42)."""

from __future__ import annotations

import pytest

from rmq_broker.clients.queue_locks import QueueLocks
from rmq_broker.processors.locks import QueueLockProcessor
from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, CommandError
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_tables import BrokerTables

_QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]


class _Broker(BrokerTables):
    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=4))
        self.locks = QueueLocks(lambda: 0.0)
        self.processor = QueueLockProcessor(self.locks, self.groups, self.topics, "broker-a")

    def ask(self, body: bytes) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=body)
        return self.processor.lock_batch(self.connection, request)

    def lock(self, client_id: str, queues: list[MessageQueue], group: str = "CG") -> list[MessageQueue]:
        body = LockBatchRequestBody(client_id=client_id, consumer_group=group, mq_set=queues)
        response = self.ask(body.encode())
        assert response.code == ResponseCode.SUCCESS
        return LockBatchResponseBody.decode(response.body).lock_ok_mq_set

    def unlock(self, client_id: str, queues: list[MessageQueue]) -> RemotingCommand:
        body = UnlockBatchRequestBody(client_id=client_id, consumer_group="CG", mq_set=queues)
        request = RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
        return self.processor.unlock_batch(self.connection, request)


async def test_queues_are_locked_and_unlocked() -> None:
    broker = _Broker()
    assert broker.lock("c1", _QUEUES[:3]) == _QUEUES[:3]
    assert broker.lock("c2", _QUEUES) == _QUEUES[3:]
    assert "c1 holds" in (broker.unlock("c2", _QUEUES[:1]).remark or "")
    assert broker.locks.holder("CG", _QUEUES[0]) == "c1"
    assert broker.unlock("c1", _QUEUES).code == ResponseCode.SUCCESS
    assert broker.lock("c2", _QUEUES) == _QUEUES


async def test_as_a_java_client_asks() -> None:
    broker = _Broker()
    body = (
        b'{"clientId":"10.0.0.1@1","consumerGroup":"CG","mqSet":[{"brokerName":"broker-a","queueId":1,'
        b'"topic":"T"}],"onlyThisBroker":false}'
    )
    answer = broker.ask(body)
    assert answer.body == b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":1,"topic":"T"}]}'
    assert broker.locks.holder("CG", _QUEUES[1]) == "10.0.0.1@1"


@pytest.mark.parametrize(
    "queue",
    [
        MessageQueue("Unknown", "broker-a", 0),
        MessageQueue("T", "broker-b", 0),
        MessageQueue("T", "broker-a", 4),
        MessageQueue("T", "broker-a", -1),
    ],
)
async def test_what_is_not_here_is_not_locked(queue: MessageQueue) -> None:
    broker = _Broker()
    body = LockBatchRequestBody(client_id="c1", consumer_group="CG", mq_set=[_QUEUES[0], queue])
    answer = broker.ask(body.encode())
    assert LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == _QUEUES[:1]
    assert str(queue) in (answer.remark or "")
    assert broker.locks.counts() == {"CG": 1}


async def test_bad_requests_are_refused() -> None:
    broker = _Broker(autoCreateSubscriptionGroup="false")
    with pytest.raises(CommandError, match="consumer group CG does not exist") as refusal:
        broker.lock("c1", _QUEUES)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    with pytest.raises(CommandError, match="clientId") as refusal:
        broker.lock("", _QUEUES)
    assert refusal.value.code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(CommandError, match="clientId"):
        broker.unlock("", _QUEUES)
    with pytest.raises(BodyError):
        broker.ask(b"")
    assert broker.locks.counts() == {}

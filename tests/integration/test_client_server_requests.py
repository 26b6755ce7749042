"""Requests of administrators that a broker passes on to a push consumer."""

from __future__ import annotations

from pathlib import Path

from rmq_client import (
    ConsumeResult,
    MessageExt,
    MessageQueue,
)
from rmq_remoting.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.headers.consumer import GetConsumerStatusRequestHeader
from rmq_remoting.headers.offsets import ResetOffsetRequestHeader
from rmq_remoting.message_codec import encode_stored_message
from tests.support.clusters import running_cluster
from tests.support.push_consumers import Inbox, consumer_of, put, until_assigned
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


async def test_an_administrator_resets_the_offsets_of_a_group(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 5, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox):
            await until(lambda: len(inbox.messages) == 5)
            header = ResetOffsetRequestHeader(topic="T", group="g")
            body = ResetOffsetBody(offset_table={MessageQueue("T", "broker-a", 0): 2})
            (client_id,) = cluster.broker.members()
            request = RemotingCommand.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header.encode(), body.encode(), oneway=True
            )
            cluster.broker.connection_of(client_id).send_oneway(request)
            await until(lambda: len(inbox.messages) == 8)
            assert [message.queue_offset for message in inbox.messages[5:]] == [2, 3, 4]


async def test_an_administrator_gets_the_running_info_of_a_consumer(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        put(cluster, 5, queues=1)
        inbox = Inbox()
        async with consumer_of(cluster, inbox, workers=7) as consumer:
            await until(lambda: len(inbox.messages) == 5)
            await until_assigned(consumer, 2)
            (client_id,) = cluster.broker.members()
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group="g", client_id=client_id, jstack_enable=True
            )
            answer = await cluster.broker.ask_member(
                RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode())
            )
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
            assert [subscription.topic for subscription in info.subscription_set] == ["T", "%RETRY%g"]
            queues = {queue for queue in info.mq_table if queue.topic == "T"}
            assert queues == {MessageQueue("T", "broker-a", number) for number in range(2)}
            assert info.mq_table[MessageQueue("T", "broker-a", 0)].commit_offset == 5
            assert "rmq-g-0" in (info.jstack or "")

            status = GetConsumerStatusRequestHeader(topic="T", group="g")
            answer = await cluster.broker.ask_member(
                RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, status.encode())
            )
            table = GetConsumerStatusBody.decode(answer.body).message_queue_table
            assert table[MessageQueue("T", "broker-a", 0)] == 5

            header.consumer_group = "unknown"
            answer = await cluster.broker.ask_member(
                RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode())
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "no consumer of group unknown" in (answer.remark or "")


async def test_an_administrator_has_one_message_consumed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, {"broker-a": {"T": 1, "U": 1}}) as cluster:
        cluster.broker.put("U", b"directly")
        (message,) = cluster.broker.stored("U")
        got: list[MessageExt] = []

        def listen(messages: list[MessageExt]) -> ConsumeResult | None:
            got.extend(messages)
            if len(got) == 3:
                raise RuntimeError("no")
            return ConsumeResult.LATER if len(got) == 2 else None

        async with consumer_of(cluster, listen):
            (client_id,) = cluster.broker.members()
            header = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="g", client_id=client_id, msg_id="x", stored_broker_name="broker-z"
            )
            results = []
            for _ in range(3):
                request = RemotingCommand.request(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY, header.encode(), encode_stored_message(message)
                )
                answer = await cluster.broker.ask_member(request)
                results.append(ConsumeMessageDirectlyResult.decode(answer.body))
            assert [result.consume_result for result in results] == [
                CMResult.CR_SUCCESS,
                CMResult.CR_LATER,
                CMResult.CR_THROW_EXCEPTION,
            ]
            assert results[2].remark == "RuntimeError('no')"
            assert (got[0].body, got[0].broker_name) == (b"directly", "broker-z")

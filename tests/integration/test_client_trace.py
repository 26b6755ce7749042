"""Hooks of producers, and traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_client import (
    BatchPolicy,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    Recall,
    Rejected,
    SendContext,
    SendHook,
    Tracing,
    TransactionEnd,
    TransactionState,
    UsageError,
)
from rmq_remoting.codes import RequestCode
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_TRACES = "RMQ_SYS_TRACE_TOPIC"
_LIMIT_BYTES = 2000  # of the brokers; messages above it are refused there
_QUICK = Tracing(linger_seconds=0.01)


@asynccontextmanager
async def _cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    brokers = {"broker-a": {"T": 1, _TRACES: 1}}
    async with running_cluster(tmp_path, brokers, maxMessageSize=_LIMIT_BYTES) as cluster:
        yield cluster


def _lines(cluster: RunningCluster) -> list[list[str]]:
    records = cluster.broker.stored(_TRACES)
    lines = [line for record in records for line in record.body.decode().split("\x02") if line]
    return [line.split("\x01") for line in lines]


class _Hook(SendHook):
    """Records its calls, marks messages, and refuses those that ask for it."""

    def __init__(self) -> None:
        self.ended: list[SendContext] = []

    def before(self, context: SendContext) -> None:
        if context.message.tags == "refuse":
            raise UsageError("not this one")
        context.properties["mark"] = context.group

    def after(self, context: SendContext) -> None:
        self.ended.append(context)
        if context.message.tags == "late":
            raise ValueError("as ordered by the test")


# --- hooks ---


async def test_hooks_see_every_way_of_sending(tmp_path: Path) -> None:
    hook = _Hook()
    async with _cluster(tmp_path) as cluster, Producer(cluster.address, group="g", hooks=[hook]) as producer:
        message = Message("T", b"1")
        result = await producer.send(message)
        batch = await producer.send_batch([Message("T", b"2"), Message("T", b"3")])
        await producer.send_oneway(Message("T", b"4"))
        await until(lambda: len(cluster.broker.messages()) == 4)
        assert {record.properties["mark"] for record in cluster.broker.stored("T", 0)} == {"g"}
        assert message.properties == {}
        assert [context.result for context in hook.ended] == [result, *batch, None]
        assert all(context.error is None for context in hook.ended)
        assert result.broker_address == cluster.broker.address


async def test_hooks_see_automatic_batches(tmp_path: Path) -> None:
    hook = _Hook()
    async with (
        _cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g", hooks=[hook], batching=BatchPolicy()) as producer,
    ):
        result = await producer.send(Message("T", b"1"))
        assert cluster.broker.recorded.codes().count(RequestCode.SEND_BATCH_MESSAGE) == 1
        assert [context.result for context in hook.ended] == [result]


async def test_a_hook_can_refuse_a_message(tmp_path: Path) -> None:
    hook = _Hook()
    async with _cluster(tmp_path) as cluster, Producer(cluster.address, group="g", hooks=[hook]) as producer:
        refused = Message("T", b"1", tags="refuse")
        with pytest.raises(UsageError, match="not this one"):
            await producer.send(refused)
        with pytest.raises(UsageError, match="not this one"):
            await producer.send_oneway(refused)
        with pytest.raises(UsageError, match="not this one"):
            await producer.send_batch([refused])
        assert cluster.broker.bodies() == []
        assert producer.in_flight == 0


async def test_hooks_see_failures_and_their_errors_are_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    hook = _Hook()
    async with _cluster(tmp_path) as cluster, Producer(cluster.address, group="g", hooks=[hook]) as producer:
        refused = Message("T", b"x" * (_LIMIT_BYTES + 1))
        with pytest.raises(Rejected):
            await producer.send(refused)
        with pytest.raises(Rejected):
            await producer.send_batch([refused])
        assert [type(context.error) for context in hook.ended] == [Rejected, Rejected]
        await producer.send(Message("T", b"3", tags="late"))
        assert "after=a send" in caplog.text


async def test_hook_errors_at_the_end_of_a_transaction_are_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    class Failing(SendHook):
        def transaction_ended(self, end: TransactionEnd) -> None:
            raise ValueError("as ordered by the test")

    async with (
        _cluster(tmp_path) as cluster,
        Producer(cluster.address, group="g", hooks=[Failing()]) as producer,
        producer.transaction(Message("T", b"1")),
    ):
        pass
    assert "after=the end of a transaction" in caplog.text


# --- traces ---


async def test_sends_are_traced(tmp_path: Path) -> None:
    tracing = Tracing(linger_seconds=3600)  # sent at the stop
    async with _cluster(tmp_path) as cluster:
        async with Producer(cluster.address, group="g", trace=tracing) as producer:
            results = [
                await producer.send(Message("T", b"12345", tags="paid", keys=["k1", "k2"], delay_level=1)),
                *await producer.send_batch([Message("T", b"1"), Message("T", b"2")]),
            ]
            await producer.send_oneway(Message("T", b"unknown"))
            await until(lambda: b"unknown" in cluster.broker.bodies())
            with pytest.raises(Rejected):
                await producer.send(Message("T", b"x" * (_LIMIT_BYTES + 1)))
        lines = _lines(cluster)
        assert [line[5] for line in lines] == [result.msg_id for result in results]
        first = lines[0]
        assert first[0] == "Pub"
        assert first[2:10] == [
            "DefaultRegion",
            "g",
            "T",
            results[0].msg_id,
            "paid",
            "k1 k2",
            cluster.broker.address,
            "5",
        ]
        assert first[11:] == ["3", results[0].offset_msg_id, "true"]
        (trace, *_) = cluster.broker.stored(_TRACES)
        assert {results[0].msg_id, "k1", "k2"} <= set(trace.keys)
        groups = {
            header.target.producer_group for header in cluster.broker.sends if header.target.topic == _TRACES
        }
        assert len(groups) == 1
        assert groups.pop().startswith("_INNER_TRACE_PRODUCER-g-")


async def test_listener_calls_are_traced(tmp_path: Path) -> None:
    refused: list[MessageExt] = []

    async def listen(messages: list[MessageExt]) -> ConsumeResult:
        if messages[0].body == b"bad" and not refused:
            refused.extend(messages)
            return ConsumeResult.LATER
        return ConsumeResult.SUCCESS

    async with _cluster(tmp_path) as cluster:
        cluster.broker.put("T", b"good", tags="a", UNIQ_KEY="GOOD", KEYS="k1", MSG_REGION="R")
        cluster.broker.put("T", b"bad", UNIQ_KEY="BAD")
        cluster.broker.put("T", b"silent", UNIQ_KEY="SILENT", TRACE_ON="false")
        async with PushConsumer(
            cluster.address, group="cg", topics=["T"], listener=listen, consume_from="first", trace=_QUICK
        ):
            await until(lambda: len(_lines(cluster)) >= 6)
        by_id = {name: [line for line in _lines(cluster) if name in line] for name in ("GOOD", "BAD")}
        before, after = by_id["GOOD"]
        assert (before[0], before[2:4], before[5:]) == ("SubBefore", ["R", "cg"], ["GOOD", "0", "k1"])
        assert (after[0], after[1], after[2]) == ("SubAfter", before[4], "GOOD")
        assert (after[4:7], after[8]) == (["true", "k1", "0"], "cg")
        first_try, broker_error = by_id["BAD"][:2]
        assert (broker_error[4], broker_error[6]) == ("false", "4")
        assert first_try[6] == "0"
        assert not any("SILENT" in line for line in _lines(cluster))


async def test_polled_messages_are_traced_as_consumed(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        cluster.broker.put("T", b"1", UNIQ_KEY="ONE", MSG_REGION="R")
        cluster.broker.put("T", b"2", UNIQ_KEY="SILENT", TRACE_ON="false")
        async with PullConsumer(cluster.address, group="pg", consume_from="first", trace=_QUICK) as consumer:
            await consumer.assign(await consumer.queues("T"))
            assert [message.body for message in await consumer.poll()] == [b"1", b"2"]
        before, after = _lines(cluster)
        assert (before[0], before[2:4], before[5:7]) == ("SubBefore", ["R", "pg"], ["ONE", "0"])
        assert (after[0:3], after[4], after[6]) == (["SubAfter", before[4], "ONE"], "true", "0")


async def test_ends_and_recalls_are_not_traced_with_trace_on_false(tmp_path: Path) -> None:
    ends = [
        TransactionEnd("g", Message("T", b"1"), "ID", TransactionState.COMMIT, "h:1", region)
        for region in ("R", None)
    ]
    async with _cluster(tmp_path) as cluster:
        async with Producer(cluster.address, group="g", trace=_QUICK) as producer:
            assert producer._hooks is not None
            for end in ends:
                producer._hooks.transaction_ended(end)
            for region in ("R", None):
                producer._hooks.recalled(Recall("g", "T", "ID", region))
        assert [line[0] for line in _lines(cluster)] == ["EndTransaction", "Recall"]


async def test_a_missing_trace_topic_does_not_affect_sends(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path) as cluster:
        async with Producer(cluster.address, group="g", trace=_QUICK) as producer:
            await producer.send(Message("T", b"1"))
            await until(lambda: "spans dropped" in caplog.text)
            await producer.send(Message("T", b"2"))
        assert cluster.broker.bodies() == [b"1", b"2"]


async def test_nothing_is_traced_by_default(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster, Producer(cluster.address, group="g") as producer:
        result = await producer.send(Message("T", b"1"))
        assert result.region_id is None
    assert _lines(cluster) == []

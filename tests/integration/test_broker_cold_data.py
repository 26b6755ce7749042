"""Flow control of cold reads over the wire: requests 2001 to 2004, and their effect on pulls."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.pulling.cold_flow_control import HOLD_SECONDS
from rmq_client import Message, MessageExt, Producer, PushConsumer
from rmq_remoting.bodies.cold_data import ColdDataFlowControlInfo
from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_requests import (
    ask_among_notifications,
    heartbeat,
    offsets,
    pull,
    pulled,
    request,
    send,
    sent,
    succeeded,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.clusters import running_cluster
from tests.support.cold_log import make_cold
from tests.support.raw_client import RawClient
from tests.support.waiting import until

_KEYS = {
    "coldDataFlowControlEnable": "true",
    # Every message may be cold, however near the end of the log.
    "accessMessageInMemoryHotRatio": 0,
    "cgColdReadThreshold": 5000,
}


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    async with running_broker(tmp_path, **_KEYS) as broker:
        yield broker


async def _fill(client: RawClient, topic: str, count: int, *, size: int = 1000) -> None:
    client.send(*[send(topic, b"%04d" % number + b"x" * (size - 4)) for number in range(count)])
    for _ in range(count):
        sent(await client.receive())


async def _beat(client: RawClient, consume_type: ConsumeType) -> None:
    answer, _ = await ask_among_notifications(
        client, heartbeat("c1", "CG", {"T": "*"}, consume_type=consume_type)
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _info(client: RawClient) -> ColdDataFlowControlInfo:
    answer = succeeded(await client.ask(request(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)))
    return ColdDataFlowControlInfo.decode(answer.body)


def _thresholds(body: bytes) -> RemotingCommand:
    return request(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body)


# --- what counts ---


async def test_messages_far_from_the_end_of_the_log_count_as_cold(slow: RunningBroker) -> None:
    async with slow.client() as client:
        await _fill(client, "T", 4)
        answer = await client.ask(pull("T", count=4))
        info = await _info(client)
        assert info.runtime_table["CG"].cold_acc == info.global_acc == len(answer.body)
        assert info.cg_cold_read_threshold == 5000
        # Groups of tools are free.
        await client.ask(pull("T", "TOOLS_CONSUMER"))
        assert set((await _info(client)).runtime_table) == {"CG"}


async def test_nothing_counts_near_the_end_of_the_log(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **_KEYS | {"accessMessageInMemoryHotRatio": 26}) as broker,
        broker.client() as client,
    ):
        await _fill(client, "T", 4)
        pulled(await client.ask(pull("T")))
        assert (await _info(client)).runtime_table == {}


async def test_nothing_counts_without_flow_control(tmp_path: Path) -> None:
    keys = _KEYS | {"coldDataFlowControlEnable": "false", "cgColdReadThreshold": 0}
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        await _fill(client, "T", 4)
        assert len(pulled(await client.ask(pull("T")))) == 4
        assert len(pulled(await client.ask(pull("T")))) == 4
        assert (await _info(client)).runtime_table == {}


async def test_a_scan_counts_only_messages_that_are_read_from_the_disk(tmp_path: Path) -> None:
    keys = _KEYS | {"coldDataScanEnable": "true", "dataReadAheadEnable": "false"}
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        await _fill(client, "T", 10)
        if not broker.store.reader.warm.is_exact:
            pytest.skip("the file system does not report which pages are in memory")
        pulled(await client.ask(pull("T")))
        assert (await _info(client)).runtime_table == {}
        make_cold(broker.store)
        answer = await client.ask(pull("T", count=3))
        assert (await _info(client)).runtime_table["CG"].cold_acc == len(answer.body)


async def test_bytes_read_ahead_count_for_the_group_that_caused_it(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **_KEYS | {"coldDataScanEnable": "true"}) as broker,
        broker.client() as client,
    ):
        await _fill(client, "T", 40)
        make_cold(broker.store)
        first = await client.ask(pull("T", count=2))
        second = await client.ask(pull("T", offset=2, count=2))
        log = broker.store.commit_log
        rest = log.max_offset - pulled(second)[-1].physical_offset - len(second.body) // 2
        assert (await _info(client)).global_acc == len(first.body) + len(second.body) + rest


async def test_filtered_messages_count_as_well(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, **_KEYS, enablePropertyFilter="true") as broker,
        broker.client() as client,
    ):
        await _fill(client, "T", 4)
        answer = await client.ask(pull("T", subscription="a = 1", expression_type="SQL92"))
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (await _info(client)).global_acc > 4000


# --- effects ---


async def test_a_push_consumer_above_its_threshold_is_told_to_wait(slow: RunningBroker) -> None:
    async with slow.client() as client, slow.client() as member:
        await _fill(client, "T", 10)
        await _beat(member, ConsumeType.CONSUME_PASSIVELY)
        assert len(pulled(await client.ask(pull("T", count=8)))) == 8

        answer = await client.ask(pull("T", offset=8))

        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "reading cold data" in str(answer.remark)
        # Another group, and another queue's tail, are served.
        assert len(pulled(await client.ask(pull("T", "Other")))) == 10
        assert (await client.ask(pull("T", offset=10))).code == ResponseCode.PULL_NOT_FOUND

        slow.services.pulls.cold_groups.end_period()
        assert len(pulled(await client.ask(pull("T", offset=8)))) == 2


@pytest.mark.parametrize("is_member", [True, False])
async def test_another_consumer_is_held_and_gets_one_message(slow: RunningBroker, is_member: bool) -> None:
    async with slow.client() as client, slow.client() as member:
        await _fill(client, "T", 10)
        if is_member:
            await _beat(member, ConsumeType.CONSUME_ACTIVELY)
        assert len(pulled(await client.ask(pull("T", count=8)))) == 8

        client.send(pull("T", offset=8))
        slowed = slow.services.pulls.slowed_pulls
        await until(lambda: slowed.count == 1)
        slowed.clock = lambda: time.monotonic() + HOLD_SECONDS
        answer = await client.receive()

        assert [message.queue_offset for message in pulled(answer)] == [8]
        assert offsets(answer)[0] == 9
        assert slowed.count == 0


async def test_a_held_pull_ends_with_its_client_and_with_the_broker(slow: RunningBroker) -> None:
    async with slow.client() as client:
        await _fill(client, "T", 10)
        pulled(await client.ask(pull("T")))
        slowed = slow.services.pulls.slowed_pulls
        async with slow.client() as leaving:
            leaving.send(pull("T", offset=8))
            await until(lambda: slowed.count == 1)
        await until(lambda: slowed.count == 0)

        client.send(pull("T", offset=8))
        await until(lambda: slowed.count == 1)
        slow.services.pulls.release_all()
        assert len(pulled(await client.receive())) == 1


async def test_all_groups_are_slowed_down_where_they_read_too_much_together(tmp_path: Path) -> None:
    keys = _KEYS | {"cgColdReadThreshold": 1_000_000, "globalColdReadThreshold": 5000}
    async with (
        running_broker(tmp_path, **keys) as broker,
        broker.client() as client,
        broker.client() as member,
    ):
        await _fill(client, "T", 10)
        await _beat(member, ConsumeType.CONSUME_PASSIVELY)
        pulled(await client.ask(pull("T", count=1)))
        pulled(await client.ask(pull("T", "Other")))
        assert (await client.ask(pull("T"))).code == ResponseCode.SYSTEM_BUSY


async def test_consumers_read_on_when_the_period_ends(tmp_path: Path) -> None:
    keys = {**_KEYS, "cgColdReadThreshold": 3000}
    async with running_cluster(tmp_path, {"broker-a": {"T": 4}}, **keys) as cluster:
        async with Producer(cluster.address, group="p") as producer:
            for number in range(20):
                await producer.send(Message("T", b"%04d" % number + b"x" * 1000))
        pulls = cluster.brokers["broker-a"].services.pulls
        consumed: set[bytes] = set()

        def listen(messages: list[MessageExt]) -> None:
            consumed.update(message.body[:4] for message in messages)

        async with PushConsumer(
            cluster.address, group="g", topics="T", listener=listen, consume_from="first"
        ):
            await until(lambda: pulls.cold_flow.refused > 0)
            assert len(consumed) < 20

            def ended_and_consumed() -> bool:
                pulls.cold_groups.end_period()
                return len(consumed) == 20

            await until(ended_and_consumed)


# --- administration ---


async def test_thresholds_of_groups_are_set_and_removed(slow: RunningBroker) -> None:
    async with slow.client() as client, slow.client() as member:
        await _fill(client, "T", 10)
        await _beat(member, ConsumeType.CONSUME_PASSIVELY)
        succeeded(await client.ask(_thresholds(b"CG=100000\nOther=5\n")))
        assert (await _info(client)).config_table == {"CG": 100_000, "Other": 5}
        pulled(await client.ask(pull("T")))
        pulled(await client.ask(pull("T")))

        succeeded(await client.ask(request(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, b"CG")))
        assert (await client.ask(pull("T"))).code == ResponseCode.SYSTEM_BUSY
        assert (await _info(client)).config_table == {"Other": 5}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"CG=100\nb=fast", "number of bytes"),
        (b"CG=-1", "number of bytes"),
        (b"CG=9223372036854775808", "number of bytes"),
        ("gr\u00fcppe=1".encode(), "illegal"),
        (b"CG=\\u12", "lines of the form group=bytes"),
    ],
)
async def test_bad_thresholds_change_nothing(slow: RunningBroker, body: bytes, told: str) -> None:
    async with slow.client() as client:
        answer = await client.ask(_thresholds(body))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert told in str(answer.remark)
        assert (await _info(client)).config_table == {}


async def test_reading_ahead_is_switched_off_and_on(slow: RunningBroker) -> None:
    async with slow.client() as client:
        await _fill(client, "T", 40)
        settings = slow.configuration.settings
        off = request(RequestCode.SET_COMMITLOG_READ_MODE, READ_AHEAD_MODE="1")
        assert succeeded(await client.ask(off)).remark == "set commitlog readahead mode success, mode: 1"
        assert not settings.data_read_ahead_enable
        make_cold(slow.store)
        for offset in (0, 2):
            pulled(await client.ask(pull("T", "TOOLS_CONSUMER", offset=offset, count=2)))
        (ends_of_reads,) = slow.store.reader.caches
        assert not ends_of_reads.get(("T", 0))

        succeeded(await client.ask(request(RequestCode.SET_COMMITLOG_READ_MODE, READ_AHEAD_MODE="0")))
        assert settings.data_read_ahead_enable
        pulled(await client.ask(pull("T", "TOOLS_CONSUMER", count=2)))
        assert ends_of_reads.get(("T", 0))

        wrong = await client.ask(request(RequestCode.SET_COMMITLOG_READ_MODE, READ_AHEAD_MODE="2"))
        assert wrong.code == ResponseCode.INVALID_PARAMETER
        assert "0 (read ahead) or 1" in str(wrong.remark)


async def test_records_of_pop_need_no_export(slow: RunningBroker) -> None:
    async with slow.client() as client:
        succeeded(await client.ask(request(RequestCode.POP_ROLLBACK)))


async def test_the_longest_read_is_told(slow: RunningBroker) -> None:
    async with slow.client() as client:
        await _fill(client, "T", 4)
        pulled(await client.ask(pull("T", "TOOLS_CONSUMER")))
        longest = slow.store.read_statistics.longest_read_seconds
        assert longest > 0
        assert slow.store.runtime_info()["getMessageEntireTimeMax"] == str(int(longest * 1000))


async def test_the_wait_of_requests_for_their_turn_is_told(slow: RunningBroker) -> None:
    async with slow.client() as client:
        client.send(*[send("T", b"x") for _ in range(200)])
        sends = frozenset({int(RequestCode.SEND_MESSAGE_V2)})
        listeners = slow.broker.listeners
        waits: list[float] = []

        def noted() -> bool:
            waits.append(listeners.oldest_wait_seconds(sends))
            return waits[-1] > 0

        await until(noted)
        for _ in range(200):
            sent(await client.receive())
        assert listeners.oldest_wait_seconds(sends) == 0.0

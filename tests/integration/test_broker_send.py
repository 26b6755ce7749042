"""Sends over the wire: stored messages, refusals and answers."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import (
    BORN_MS,
    create_topic,
    offsets,
    pull,
    pulled,
    request,
    send,
    send_batch,
    sent,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient, raw_client
from tests.support.rows import each_row
from tests.support.waiting import until_answer

# What the broker adds to the properties of every message.
_BROKERS_OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
_MAX_BODY_BYTES = 4 * 1024 * 1024


async def _stored(client: RawClient, topic: str, queue_id: int = 0, offset: int = 0) -> list[MessageExt]:
    return pulled(await client.ask(pull(topic, queue_id=queue_id, offset=offset)))


async def _refused(client: RawClient, command: RemotingCommand, code: ResponseCode) -> str:
    """Return the remark of a send that must be refused with this code and the constant fields."""
    answer = await client.ask(command)
    assert answer.code == code, f"{answer.code}: {answer.remark}"
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert answer.remark
    return answer.remark


# --- storing ---


@pytest.mark.parametrize("serialization", list(Serialization))
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_message_is_read_back_as_it_was_sent(
    broker: RunningBroker, client: RawClient, code: int, serialization: Serialization
) -> None:
    given = {"TAGS": "paid", "KEYS": "k1 k2", "UNIQ_KEY": "0A0B", "WAIT": "true", "shop": "Zürich"}
    answer = await client.ask(
        send(
            "Orders",
            b"\x00body\xff",
            code=code,
            serialization=serialization,
            properties=given,
            queue_id=3,
            flag=77,
            sys_flag=MessageSysFlag.COMPRESSED,
            reconsume_times=2,
        )
    )

    stored_at = sent(answer)
    assert answer.serialization is serialization
    assert answer.remark is None
    assert {name: answer.ext_fields[name] for name in ("MSG_REGION", "TRACE_ON")} == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert (stored_at.queue_id, stored_at.queue_offset) == (3, 0)
    record = await client.ask(pull("Orders", queue_id=3))
    (message,) = decode_messages(record.body, decompress_bodies=False, check_crc=True)
    assert message.body == b"\x00body\xff"
    assert message.properties == given | _BROKERS_OWN
    assert (message.topic, message.queue_id, message.queue_offset) == ("Orders", 3, 0)
    assert (message.flag, message.sys_flag, message.reconsume_times) == (77, 1, 2)
    assert message.born_timestamp == BORN_MS
    assert message.born_host == client.writer.get_extra_info("sockname")
    assert message.store_host == ("127.0.0.1", broker.port)
    assert message.prepared_transaction_offset == 0
    assert message.offset_msg_id == stored_at.msg_id
    assert parse_offset_message_id(stored_at.msg_id)[1] == message.physical_offset


async def test_both_serializations_and_all_codes_mix_on_one_connection(client: RawClient) -> None:
    commands = [
        send("T", b"%d" % number, code=code, serialization=serialization)
        for number, (code, serialization) in enumerate(
            (code, serialization)
            for _ in range(5)
            for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
            for serialization in Serialization
        )
    ]
    client.send(*commands)  # all in one write: the answers of one read leave together

    answers = {answer.opaque: answer for answer in [await client.receive() for _ in commands]}

    for number, command in enumerate(commands):
        assert answers[command.opaque].serialization is command.serialization
        assert sent(answers[command.opaque]).queue_offset == number
    bodies = [message.body for message in await _stored(client, "T")]
    assert bodies == [b"%d" % number for number in range(len(commands))]


async def test_a_one_way_send_is_stored_without_an_answer(client: RawClient) -> None:
    client.send(send("T", b"one way", oneway=True), send("Illegal!", oneway=True))

    assert sent(await client.ask(send("T", b"second"))).queue_offset == 1
    assert [message.body for message in await _stored(client, "T")] == [b"one way", b"second"]


async def test_the_fast_port_takes_sends_but_no_pulls(broker: RunningBroker, client: RawClient) -> None:
    async with raw_client(broker.fast_port) as fast:
        assert sent(await fast.ask(send("T", b"fast"))).queue_offset == 0
        refused = await fast.ask(pull("T"))

    assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert [message.body for message in await _stored(client, "T")] == [b"fast"]


async def test_a_hundred_topics_keep_their_messages_apart(client: RawClient) -> None:
    names = [f"Topic-{number}" for number in range(100)]
    for name in names:
        for queue in (0, 3):
            sent(await client.ask(send(name, f"{name}/{queue}".encode(), queue_id=queue)))

    for name in names:
        for queue in (0, 3):
            (message,) = await _stored(client, name, queue)
            assert (message.topic, message.body) == (name, f"{name}/{queue}".encode())


async def test_a_missing_unique_key_is_added(client: RawClient) -> None:
    for number in range(3):
        sent(await client.ask(send("T", properties={"n": str(number), "UNIQ_KEY": ""})))

    messages = await _stored(client, "T")

    keys = [message.properties["UNIQ_KEY"] for message in messages]
    assert len(set(keys)) == 3
    assert all(len(key) == 32 for key in keys)
    assert messages[2].properties == {"n": "2", "UNIQ_KEY": keys[2]} | _BROKERS_OWN


async def test_properties_set_by_the_broker_are_not_accepted_from_producers(client: RawClient) -> None:
    """As from a consumer that forwards a message with all its properties."""
    given = {
        "POP_CK": "0 1 2",
        "CLUSTER": "elsewhere",
        "MSG_REGION": "moon",
        "TRACE_ON": "false",
        "UNIQ_KEY": "K",
        "MY_POP_CK": "stays",
    }
    sent(await client.ask(send("T", properties=given)))

    (message,) = await _stored(client, "T")

    assert message.properties == {"UNIQ_KEY": "K", "MY_POP_CK": "stays"} | _BROKERS_OWN


async def test_region_and_trace_switch_follow_the_settings_at_once(
    broker: RunningBroker, client: RawClient
) -> None:
    await client.ask(send("T"))
    broker.change(regionId="eu-1", traceOn=False)

    answer = await client.ask(send("T", properties={"UNIQ_KEY": "K"}))
    refused = await client.ask(send("T", b""))

    assert sent(answer).queue_offset == 1
    for each in (answer, refused):
        assert (each.ext_fields["MSG_REGION"], each.ext_fields["TRACE_ON"]) == ("eu-1", "false")
    (message,) = await _stored(client, "T", offset=1)
    assert message.properties == {
        "UNIQ_KEY": "K",
        "MSG_REGION": "eu-1",
        "TRACE_ON": "false",
        "CLUSTER": "DefaultCluster",
    }


async def test_a_topic_is_created_like_the_default_topic(broker: RunningBroker, client: RawClient) -> None:
    sent(await client.ask(send("Four", queue_id=3, default_queue_nums=4)))
    sent(await client.ask(send("Eight", default_queue_nums=100)))
    sent(await client.ask(send("Unit", unit_mode=True)))
    sent(await client.ask(send("%RETRY%Group", unit_mode=True)))

    topics = broker.topics
    four, eight = topics.get("Four"), topics.get("Eight")
    unit, retry = topics.get("Unit"), topics.get("%RETRY%Group")
    assert four and eight and unit and retry
    assert (four.read_queue_nums, four.write_queue_nums, four.perm) == (4, 4, 6)
    assert (eight.read_queue_nums, eight.write_queue_nums) == (8, 8)  # defaultTopicQueueNums is the limit
    assert (unit.topic_sys_flag, retry.topic_sys_flag) == (1, 2)


async def test_a_negative_queue_id_is_replaced_by_a_random_one(
    broker: RunningBroker, client: RawClient
) -> None:
    queues = {
        sent(await client.ask(send("T", queue_id=-1, default_queue_nums=3))).queue_id for _ in range(60)
    }

    assert queues == {0, 1, 2}
    assert sum(broker.store.max_offset("T", queue) for queue in queues) == 60


async def test_producers_cannot_set_the_bits_for_ipv6_hosts(client: RawClient) -> None:
    """The bits belong to the record's layout: with wrong bits the log could not be read from there on."""
    bits = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
    sent(await client.ask(send("T", b"first", sys_flag=bits)))
    sent(await client.ask(send("T", b"second")))

    messages = await _stored(client, "T")

    assert [(message.body, message.sys_flag) for message in messages] == [(b"first", 0), (b"second", 0)]


# --- refusals ---


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("Bad topic!", "illegal: only letters, digits"),
        ("Tüpfel", "illegal: only letters, digits"),
        ("T" * 128, "128 characters, the limit is 127"),
        (" ", "blank"),
    ],
)
async def test_a_bad_topic_name_is_refused(client: RawClient, topic: str, remark: str) -> None:
    assert remark in await _refused(client, send(topic), ResponseCode.INVALID_PARAMETER)


async def test_the_longest_topic_name_is_accepted(client: RawClient) -> None:
    sent(await client.ask(send("T" * 127)))
    (message,) = await _stored(client, "T" * 127)
    assert message.topic == "T" * 127


@each_row(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
async def test_topics_of_the_broker_itself_are_refused(client: RawClient, topic: str) -> None:
    assert "forbidden" in await _refused(client, send(topic), ResponseCode.NO_PERMISSION)


async def test_without_auto_creation_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, autoCreateTopicEnable=False) as broker,
        broker.client() as client,
    ):
        remark = await _refused(client, send("Unknown"), ResponseCode.TOPIC_NOT_EXIST)
        assert "Unknown does not exist" in remark
        assert "autoCreateTopicEnable=true" in remark
        sent(await client.ask(send("%RETRY%Group")))  # retry topics are created nevertheless

        broker.change(autoCreateTopicEnable=True)
        sent(await client.ask(send("Unknown")))


async def test_a_default_topic_without_inherit_permission_creates_no_topic(client: RawClient) -> None:
    await client.ask(create_topic("Model"))

    await _refused(client, send("T", default_topic="Model"), ResponseCode.TOPIC_NOT_EXIST)
    await _refused(client, send("T", default_topic="Nobody"), ResponseCode.TOPIC_NOT_EXIST)


async def test_a_topic_that_may_not_be_written_is_refused(client: RawClient) -> None:
    await client.ask(create_topic("ReadOnly", perm=4))

    remark = await _refused(client, send("ReadOnly"), ResponseCode.NO_PERMISSION)

    assert "ReadOnly is forbidden" in remark


async def test_a_broker_without_write_permission_refuses_ordered_topics(
    broker: RunningBroker, client: RawClient
) -> None:
    await client.ask(create_topic("Ordered", order=True))
    sent(await client.ask(send("Ordered")))
    sent(await client.ask(send("Plain")))
    broker.change(brokerPermission=4)

    remark = await _refused(client, send("Ordered"), ResponseCode.NO_PERMISSION)

    assert "this broker is forbidden" in remark
    sent(await client.ask(send("Plain")))  # drained by withdrawing its routes
    broker.change(brokerPermission=6)
    sent(await client.ask(send("Ordered")))


async def test_a_queue_id_out_of_range_is_refused(client: RawClient) -> None:
    await client.ask(create_topic("T", 4, write=2))

    sent(await client.ask(send("T", queue_id=3)))  # the larger number counts, as with Apache's broker
    remark = await _refused(client, send("T", queue_id=4), ResponseCode.INVALID_PARAMETER)
    assert "queue id 4 is illegal: topic T has 4 queues" in remark

    await client.ask(create_topic("NoQueues", 0))
    await _refused(client, send("NoQueues"), ResponseCode.INVALID_PARAMETER)
    remark = await _refused(client, send("NoQueues", queue_id=-1), ResponseCode.INVALID_PARAMETER)
    assert "no queues" in remark


async def test_the_largest_body_is_accepted_and_one_byte_more_is_refused(client: RawClient) -> None:
    largest = b"x" * _MAX_BODY_BYTES
    sent(await client.ask(send("T", largest)))

    remark = await _refused(client, send("T", largest + b"x"), ResponseCode.MESSAGE_ILLEGAL)

    assert f"{_MAX_BODY_BYTES + 1} bytes, the limit is {_MAX_BODY_BYTES} (maxMessageSize)" in remark
    (message,) = await _stored(client, "T")
    assert message.body == largest


async def test_a_changed_size_limit_applies_at_once(client: RawClient) -> None:
    sent(await client.ask(send("T", b"x" * 11)))
    change = request(RequestCode.UPDATE_BROKER_CONFIG, b"maxMessageSize=10\n")
    assert (await client.ask(change)).code == ResponseCode.SUCCESS

    sent(await client.ask(send("T", b"x" * 10)))
    assert "limit is 10" in await _refused(client, send("T", b"x" * 11), ResponseCode.MESSAGE_ILLEGAL)
    batch = send_batch("T", [Message("T", b"x")])
    assert "limit is 10" in await _refused(client, batch, ResponseCode.MESSAGE_ILLEGAL)


async def test_an_empty_body_is_refused(client: RawClient) -> None:
    assert "no body" in await _refused(client, send("T", b""), ResponseCode.MESSAGE_ILLEGAL)
    assert "no body" in await _refused(client, send_batch("T", b""), ResponseCode.MESSAGE_ILLEGAL)


async def test_the_limit_of_properties_includes_those_added_by_the_broker(client: RawClient) -> None:
    added = len("".join(f"{name}\x01{value}\x02" for name, value in _BROKERS_OWN.items()))
    room = 32_767 - added - len("UNIQ_KEY\x01K\x02v\x01\x02")
    sent(await client.ask(send("T", properties=b"UNIQ_KEY\x01K\x02v\x01%b\x02" % (b"x" * room))))

    too_long = b"UNIQ_KEY\x01K\x02v\x01%b\x02" % (b"x" * (room + 1))
    remark = await _refused(client, send("T", properties=too_long), ResponseCode.MESSAGE_ILLEGAL)

    assert "32768 bytes, the limit is 32767" in remark
    # The same for properties that have to be decoded.
    far_too_long = b"CLUSTER\x01c\x02v\x01%b\x02" % (b"x" * 40_000)
    remark = await _refused(client, send("T", properties=far_too_long), ResponseCode.MESSAGE_ILLEGAL)
    assert "the limit is 32767" in remark
    (message,) = await _stored(client, "T")
    assert len(message.properties["v"]) == room


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({"DELAY": "soon"}, "no delay level"),
        ({"DELAY": "²"}, "no delay level"),
        ({"DELAY": "--5"}, "no delay level"),
    ],
)
async def test_an_invalid_delay_is_refused_and_not_delivered_at_once(
    broker: RunningBroker, client: RawClient, properties: dict[str, str], remark: str
) -> None:
    said = await _refused(client, send("T", properties=properties), ResponseCode.MESSAGE_ILLEGAL)
    batch = send_batch("T", [Message("T", b"x")], properties=properties)
    said_of_batch = await _refused(client, batch, ResponseCode.MESSAGE_ILLEGAL)

    assert remark in said
    assert remark in said_of_batch
    assert broker.store.max_offset("T", 0) == 0


@pytest.mark.parametrize(
    "properties",
    [{"DELAY": "0"}, {"DELAY": "-1"}, {"TRAN_MSG": "false"}, {"MY_DELAY": "3", "XTRAN_MSG": "true"}],
)
async def test_properties_that_only_look_like_a_delay_are_stored(
    client: RawClient, properties: dict[str, str]
) -> None:
    sent(await client.ask(send("T", properties=properties | {"UNIQ_KEY": "K"})))
    (message,) = await _stored(client, "T")
    assert message.properties == properties | {"UNIQ_KEY": "K"} | _BROKERS_OWN


@pytest.mark.parametrize(
    ("sys_flag", "remark"),
    [
        (MessageSysFlag.TRANSACTION_ROLLBACK, "cannot be sent as one that was rolled back"),
        (MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP, "batch that is stored as one message"),
    ],
)
async def test_flags_of_unsupported_features_are_refused(
    broker: RunningBroker, client: RawClient, sys_flag: int, remark: str
) -> None:
    assert remark in await _refused(client, send("T", sys_flag=sys_flag), ResponseCode.MESSAGE_ILLEGAL)
    assert broker.store.max_offset("T", 0) == 0


async def test_a_header_that_cannot_be_read_is_answered_and_the_connection_lives(client: RawClient) -> None:
    command = send("T", serialization=Serialization.JSON)
    command.ext_fields["e"] = "three"

    answer = await client.ask(command)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "queueId must be a 32-bit integer, got 'three'" in str(answer.remark)
    sent(await client.ask(send("T")))


async def test_messages_are_refused_before_the_set_time(broker: RunningBroker, client: RawClient) -> None:
    sent(await client.ask(send("T")))
    broker.change(startAcceptSendRequestTimeStamp=4_102_444_800_000)

    remark = await _refused(client, send("T"), ResponseCode.SYSTEM_ERROR)

    assert "does not accept messages until 2100-01-01 00:00:00.000" in remark
    broker.change(startAcceptSendRequestTimeStamp=0)
    sent(await client.ask(send("T")))


# --- what changes meanwhile ---


async def test_a_changed_topic_invalidates_its_routes(client: RawClient) -> None:
    await client.ask(create_topic("T", 4))

    def single() -> RemotingCommand:
        return send("T", queue_id=3)

    def batch() -> RemotingCommand:
        return send_batch("T", [Message("T", b"x")], queue_id=3)

    commands = (single, batch)
    for make in commands:
        sent(await client.ask(make()))

    await client.ask(create_topic("T", 4, perm=4))
    for make in commands:
        await _refused(client, make(), ResponseCode.NO_PERMISSION)

    await client.ask(create_topic("T", 2, perm=6))
    for make in commands:
        await _refused(client, make(), ResponseCode.INVALID_PARAMETER)

    await client.ask(create_topic("T", 4, perm=6))
    for make in commands:
        sent(await client.ask(make()))


async def test_a_deleted_topic_starts_again_at_offset_0(broker: RunningBroker, client: RawClient) -> None:
    for _ in range(3):
        sent(await client.ask(send("T", b"old")))
    assert (await client.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T"))).code == 0
    broker.change(autoCreateTopicEnable=False)
    await _refused(client, send("T"), ResponseCode.TOPIC_NOT_EXIST)
    broker.change(autoCreateTopicEnable=True)

    assert sent(await client.ask(send("T", b"new"))).queue_offset == 0

    (message,) = await _stored(client, "T")
    assert message.body == b"new"
    answer = await client.ask(pull("T", offset=3))
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert offsets(answer) == (1, 0, 1)


async def test_a_full_disk_refuses_and_nothing_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def is_stored() -> bool:
        return (await client.ask(send("T", bytes(100_000)))).code == ResponseCode.SUCCESS

    async with running_broker(tmp_path, mappedFileSizeCommitLog=1 << 20) as broker, broker.client() as client:
        with monkeypatch.context() as patch:
            for call in ("posix_fallocate", "pwrite"):
                patch.setattr(os, call, full)
            while await is_stored():
                pass
            stored = broker.store.max_offset("T", 0)
            batch = send_batch("T", [Message("T", bytes(100_000))])
            said = await _refused(client, batch, ResponseCode.SERVICE_NOT_AVAILABLE)
        assert "No space left on device" in said
        assert broker.services.statistics.put_failures == 2
        assert broker.store.max_offset("T", 0) == stored

        await until_answer(is_stored)

        assert broker.store.max_offset("T", 0) == stored + 1


async def test_a_closed_store_refuses(broker: RunningBroker, client: RawClient) -> None:
    sent(await client.ask(send("T")))
    await broker.store.stop()

    said = await _refused(client, send("T"), ResponseCode.SERVICE_NOT_AVAILABLE)

    assert "the store is closed" in said


async def test_an_ipv6_producer_is_stored_with_its_address(tmp_path: Path) -> None:
    try:
        async with running_broker(tmp_path, bindAddress="::1", brokerIP1="[::1]") as broker:
            reader, writer = await asyncio.open_connection("::1", broker.port)
            client = RawClient(reader, writer)
            at = sent(await client.ask(send("T")))
            (message,) = await _stored(client, "T")
            assert message.born_host == writer.get_extra_info("sockname")[:2]
            assert message.store_host == ("::1", broker.port)
            assert message.offset_msg_id == at.msg_id
            writer.close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")

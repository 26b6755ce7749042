"""POP over the wire: popped messages are invisible, and redelivered unless they are acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.pop.metrics import PopCollector
from rmq_remoting.bodies.assignment import (
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.pop_queries import NotificationResponseHeader
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.pop_receipt import ORDER_REVIVE_QUEUE, Receipt
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    pull,
    pulled,
    send,
    sent,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.peers import Peer
from tests.support.pop_requests import (
    Popped,
    ack,
    ack_batch,
    hidden,
    hide,
    notify,
    peek,
    polling_count,
    polling_info,
    pop,
    popped,
)
from tests.support.raw_client import RawClient
from tests.support.rows import each_row
from tests.support.waiting import until

_LONG_MS = 20_000


@pytest.fixture
async def client(broker: RunningBroker) -> AsyncIterator[RawClient]:
    async with broker.client() as connected:
        assert (await connected.ask(create_topic("T", 2))).code == ResponseCode.SUCCESS
        yield connected


async def _fill(client: RawClient, count: int, topic: str = "T", queue_id: int = 0) -> None:
    for number in range(count):
        sent(await client.ask(send(topic, b"%d" % number, queue_id=queue_id)))


async def _pop(client: RawClient, **arguments: object) -> list[Popped]:
    return popped(await client.ask(pop("T", **arguments)))  # type: ignore[arg-type]


async def _nothing(client: RawClient, **arguments: object) -> None:
    answer = await client.ask(pop("T", **arguments))  # type: ignore[arg-type]
    assert answer.code == ResponseCode.POLLING_TIMEOUT


async def test_popped_messages_are_invisible_and_acknowledged_ones_are_gone(
    broker: RunningBroker, client: RawClient
) -> None:
    await _fill(client, 3)
    items = await _pop(client)
    assert [item.body for item in items] == [b"0", b"1", b"2"]
    await _nothing(client)
    for item in items:
        assert (await client.ask(ack(item))).code == ResponseCode.SUCCESS
    assert broker.pops is not None and len(broker.pops.in_flight) == 0


async def test_acknowledgements_that_arrive_together_are_answered_each(
    broker: RunningBroker, client: RawClient
) -> None:
    await _fill(client, 6)
    items = await _pop(client)
    forged = ack(items[2])
    forged.ext_fields["offset"] = "99"
    commands = [ack(items[0]), ack(items[1]), forged, *map(ack, items[2:])]
    client.send(*commands)
    answers = [await client.receive() for _ in commands]
    assert [answer.opaque for answer in answers] == [command.opaque for command in commands]
    codes = [ResponseCode.SUCCESS] * 2 + [ResponseCode.MESSAGE_ILLEGAL] + [ResponseCode.SUCCESS] * 4
    assert [answer.code for answer in answers] == codes
    assert broker.pops is not None and len(broker.pops.in_flight) == 0


async def test_an_unacknowledged_message_is_redelivered_with_its_count(client: RawClient) -> None:
    await _fill(client, 2)
    first, second = await _pop(client, invisible_ms=200)
    assert (await client.ask(ack(first))).code == ResponseCode.SUCCESS
    (again,) = await _pop(client, poll_ms=_LONG_MS)
    assert (again.body, again.message.topic) == (second.body, "T")
    assert again.message.reconsume_times == 1
    assert again.message.properties["1ST_POP_TIME"] == str(second.receipt.pop_time)
    assert again.receipt.kind == "1"
    assert (await client.ask(ack(again))).code == ResponseCode.SUCCESS
    await _nothing(client)


async def test_a_message_becomes_a_dead_letter_after_too_many_deliveries(
    broker: RunningBroker, client: RawClient
) -> None:
    group = broker.groups.find("CG")
    assert group is not None
    broker.groups.update(group.model_copy(update={"retry_max_times": 2}))
    await _fill(client, 1)
    for times in range(3):
        (item,) = await _pop(client, invisible_ms=100, poll_ms=_LONG_MS)
        assert item.message.reconsume_times == times
    await until(lambda: "%DLQ%CG" in broker.topics)
    answer = await client.ask(pull("%DLQ%CG"))
    (dead,) = pulled(answer)
    assert dead.body == b"0"
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "T"
    await _nothing(client)


async def test_a_message_wakes_a_held_pop(broker: RunningBroker, client: RawClient) -> None:
    async with broker.client() as producer:
        client.send(pop("T", poll_ms=_LONG_MS))
        await until(lambda: broker.pops is not None and broker.pops.held_pops.count == 1)
        assert polling_count(await producer.ask(polling_info("T"))) == 1
        await _fill(producer, 1, queue_id=1)
        (item,) = popped(await client.receive())
    assert item.queue_id == 1


async def test_a_blocked_pop_is_answered_once_the_limit_allows_it(tmp_path: Path) -> None:
    bounds = {"enablePopMessageThreshold": True, "popInflightMessageThreshold": 1}
    async with (
        running_broker(tmp_path, **bounds) as broker,
        broker.client() as client,
        broker.client() as waiting,
    ):
        await client.ask(create_topic("T", 1))
        await _fill(client, 5)
        items = await _pop(client, count=3)
        waiting.send(pop("T", poll_ms=_LONG_MS))
        await until(lambda: broker.pops is not None and broker.pops.held_pops.count == 1)
        assert (await client.ask(ack_batch(items))).code == ResponseCode.SUCCESS
        assert [item.body for item in popped(await waiting.receive())] == [b"3", b"4"]


async def test_a_client_whose_clock_is_ahead_waits_no_longer(
    broker: RunningBroker, client: RawClient
) -> None:
    born_ms = time.time_ns() // 1_000_000 + 3_600_000
    await _nothing(client, poll_ms=200, born_ms=born_ms)
    answer = await client.ask(notify("T", poll_ms=200, born_ms=born_ms))
    assert not NotificationResponseHeader.decode(answer.ext_fields).has_msg


async def test_a_pop_that_arrives_after_its_client_has_given_up_is_refused(
    broker: RunningBroker, client: RawClient
) -> None:
    await _fill(client, 1)
    now_ms = time.time_ns() // 1_000_000
    late = await client.ask(pop("T", poll_ms=1000, born_ms=now_ms - 30_000))
    assert late.code == ResponseCode.POLLING_TIMEOUT and "ms old" in str(late.remark)
    assert [item.body for item in await _pop(client, poll_ms=1000, born_ms=now_ms)] == [b"0"]


async def test_a_client_whose_clock_is_hours_behind_is_served(
    broker: RunningBroker, client: RawClient
) -> None:
    """So are all clients while the broker's clock is ahead. Apache's broker refuses their pops."""
    born_ms = time.time_ns() // 1_000_000 - 5 * 3_600_000
    async with broker.client() as waiting:
        waiting.send(pop("T", poll_ms=10_000, born_ms=born_ms))
        await until(lambda: broker.pops.held_pops.count == 1)
        await _fill(client, 1)
        assert [item.body for item in popped(await waiting.receive())] == [b"0"]
        waiting.send(notify("T", poll_ms=10_000, born_ms=born_ms))
        await until(lambda: broker.pops.held_notifications.count == 1)


@pytest.mark.parametrize("order", [False, True])
async def test_a_pop_fits_into_a_frame(tmp_path: Path, order: bool) -> None:
    async with (
        running_broker(tmp_path, mappedFileSizeCommitLog=32 << 20) as broker,
        broker.client() as client,
    ):
        await client.ask(create_topic("T", 5))
        for queue_id in range(5):
            sent(await client.ask(send("T", bytes(4_000_000), queue_id=queue_id)))
        seen = await client.ask(peek("T"))
        assert len(decode_messages(seen.body)) == 4
        first = await _pop(client, order=order)
        second = await _pop(client, order=order)
        assert (len(first), len(second)) == (4, 1)
        assert {item.queue_id for item in first + second} == set(range(5))


async def test_changing_the_invisible_time_gives_a_new_receipt(client: RawClient) -> None:
    await _fill(client, 1)
    (item,) = await _pop(client)
    newer = hidden(item, await client.ask(hide(item, 30_000)))
    assert (await client.ask(ack(item))).code == ResponseCode.SUCCESS  # settled by the change
    shorter = hidden(newer, await client.ask(hide(newer, 100)))
    late = await client.ask(hide(newer, 100))
    assert late.code == ResponseCode.NO_MESSAGE and late.remark is not None
    (again,) = await _pop(client, poll_ms=_LONG_MS)
    assert again.body == item.body
    expired = await client.ask(ack(shorter))
    assert expired.code == ResponseCode.NO_MESSAGE and "expired" in (expired.remark or "")
    assert (await client.ask(ack(again))).code == ResponseCode.SUCCESS
    await _nothing(client)


async def test_receipts_of_apaches_proxy_with_the_commit_log_offset_appended(client: RawClient) -> None:
    await _fill(client, 2)
    first, second = await _pop(client)
    of_proxy = [f"{item.receipt} {item.message.physical_offset}" for item in (first, second)]
    assert (await client.ask(ack(first, receipt=of_proxy[0]))).code == ResponseCode.SUCCESS
    changed = hidden(second, await client.ask(hide(second, 100, receipt=of_proxy[1])))
    (again,) = await _pop(client, poll_ms=_LONG_MS)
    assert (again.body, changed.receipt.invisible_time_ms) == (b"1", 100)
    receipt = f"{again.receipt} {again.message.physical_offset}"
    assert (await client.ask(ack(again, receipt=receipt))).code == ResponseCode.SUCCESS
    await _nothing(client)


async def test_batches_of_acknowledgements(client: RawClient) -> None:
    await _fill(client, 4)
    items = await _pop(client, invisible_ms=300)
    assert (await client.ask(ack_batch([items[0], items[2]]))).code == ResponseCode.SUCCESS
    again: list[bytes] = []
    while len(again) < 2:
        again += [item.body for item in await _pop(client, poll_ms=_LONG_MS)]
    assert again == [b"1", b"3"]
    empty = await client.ask(RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE))
    assert empty.code == ResponseCode.NO_MESSAGE


async def test_an_ordered_pop_blocks_the_messages_behind_it(client: RawClient) -> None:
    await _fill(client, 3)
    first = await _pop(client, queue_id=0, order=True, count=1)
    assert first[0].receipt.is_order
    await _nothing(client, queue_id=0, order=True)
    assert (await client.ask(ack(first[0]))).code == ResponseCode.SUCCESS
    second = await _pop(client, queue_id=0, order=True, count=1)
    assert [item.body for item in second] == [b"1"]
    hide_answer = await client.ask(hide(second[0], 100))
    assert hide_answer.code == ResponseCode.SUCCESS
    again = popped(await client.ask(pop("T", queue_id=0, order=True, count=1, poll_ms=_LONG_MS)))
    assert [item.body for item in again] == [b"1"]
    stranger = await client.ask(ack(again[0], offset=2))
    assert stranger.code == ResponseCode.MESSAGE_ILLEGAL
    assert (await client.ask(ack(second[0]))).code == ResponseCode.NO_MESSAGE
    assert (await client.ask(ack(again[0]))).code == ResponseCode.SUCCESS


async def test_tags_are_filtered(client: RawClient) -> None:
    for tag in ("a", "b", "a"):
        sent(await client.ask(send("T", tag.encode(), properties={"TAGS": tag})))
    items = await _pop(client, expression="b", expression_type="TAG")
    assert [item.body for item in items] == [b"b"]
    await _nothing(client, expression="b", expression_type="TAG")


async def test_notifications(broker: RunningBroker, client: RawClient) -> None:
    answer = await client.ask(notify("T"))
    assert not NotificationResponseHeader.decode(answer.ext_fields).has_msg
    client.send(notify("T", poll_ms=_LONG_MS))
    await until(lambda: broker.pops.held_notifications.count == 1)
    async with broker.client() as producer:
        await _fill(producer, 1)
    assert NotificationResponseHeader.decode((await client.receive()).ext_fields).has_msg


async def test_a_message_that_notified_clients_leave_is_notified_to_the_others(
    broker: RunningBroker, client: RawClient
) -> None:
    async with broker.client() as second, broker.client() as third:
        for waiting in (client, second, third):
            waiting.send(notify("T", poll_ms=_LONG_MS))
        await until(lambda: broker.pops.held_notifications.count == 3)
        async with broker.client() as producer:
            await _fill(producer, 1)
        async with asyncio.timeout(20):
            for notified in (client, second, third):
                assert NotificationResponseHeader.decode((await notified.receive()).ext_fields).has_msg


async def test_no_notification_of_messages_that_pops_do_not_read(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enableRetryTopicV2=True) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        await _fill(client, 1)
        await _pop(client, invisible_ms=100)
        pops = broker.pops
        assert pops is not None
        await until(lambda: pops.redelivery.redelivered == 1)
        for version_2 in (True, False):
            broker.change(enableRetryTopicV2=version_2)
            answer = await client.ask(notify("T"))
            assert NotificationResponseHeader.decode(answer.ext_fields).has_msg is version_2


async def test_peeking_changes_nothing(client: RawClient) -> None:
    await _fill(client, 2)
    for count in (2, 100):
        answer = await client.ask(peek("T", count=count))
        assert len(decode_messages(answer.body)) == 2
    assert len(await _pop(client)) == 2
    answer = await client.ask(peek("T"))
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_expressions_need_no_setting(client: RawClient) -> None:
    for number in ("1", "7"):
        sent(await client.ask(send("T", number.encode(), properties={"a": number})))
    items = await _pop(client, expression="a > 5", expression_type="SQL92")
    assert [item.body for item in items] == [b"7"]
    wrong = await client.ask(pop("T", expression="a > 5 AND b LIKE 'x'", expression_type="SQL92"))
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "character 13" in str(wrong.remark)


@each_row(
    ("request_", "code"),
    [
        (pop("Unknown"), ResponseCode.TOPIC_NOT_EXIST),
        (pop("T", order=True, attempt_id="x" * 256), ResponseCode.INVALID_PARAMETER),
        (pop("T", count=33), ResponseCode.INVALID_PARAMETER),
        (pop("T", count=0), ResponseCode.INVALID_PARAMETER),
        (pop("T", queue_id=2), ResponseCode.INVALID_PARAMETER),
        (pop("T", invisible_ms=0), ResponseCode.INVALID_PARAMETER),
        (pop("T", invisible_ms=4 * 86_400_000), ResponseCode.INVALID_PARAMETER),
        (pop("T", "bad group"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (pop("T", expression="a AND", expression_type="SQL92"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (pop("T", expression="a", expression_type="CLASS"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (peek("T", count=0), ResponseCode.INVALID_PARAMETER),
        (peek("T", queue_id=2), ResponseCode.INVALID_PARAMETER),
        (peek("Unknown"), ResponseCode.TOPIC_NOT_EXIST),
        (peek("T", "bad group"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (notify("Unknown"), ResponseCode.TOPIC_NOT_EXIST),
        (notify("T", queue_id=2), ResponseCode.INVALID_PARAMETER),
        (polling_info("Unknown"), ResponseCode.TOPIC_NOT_EXIST),
        (pop("T", expression="||", expression_type="TAG"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_bad_pops(client: RawClient, request_: RemotingCommand, code: ResponseCode) -> None:
    answer = await client.ask(request_)
    assert answer.code == code
    assert answer.remark


async def test_bad_receipts(client: RawClient) -> None:
    await _fill(client, 2)
    first, second = await _pop(client, count=2)
    other_receipt = Receipt(
        first.receipt.start_offset,
        first.receipt.pop_time - 1,
        first.receipt.invisible_time_ms,
        first.receipt.revive_queue_id,
        first.receipt.kind,
        first.receipt.broker_name,
    )
    expired = Receipt(0, 1, 1, 0, "0", "broker-a")
    in_order = Receipt(0, first.receipt.pop_time, 1, ORDER_REVIVE_QUEUE, "0", "broker-a")
    cases = [
        (ack(first, receipt="nonsense"), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, receipt="a b c d e f"), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, receipt=other_receipt), ResponseCode.NO_MESSAGE),
        (ack(first, receipt=expired), ResponseCode.NO_MESSAGE),
        (ack(first, "CG2"), ResponseCode.NO_MESSAGE),
        (ack(first, offset=7), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, offset=-1), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, offset=2**63 - 1), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, queue_id=-1), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, receipt=in_order), ResponseCode.NO_MESSAGE),
        (hide(first, 1000, receipt=in_order), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, queue_id=9), ResponseCode.MESSAGE_ILLEGAL),
        (ack(first, topic="Unknown"), ResponseCode.TOPIC_NOT_EXIST),
        (hide(first, 1000, "CG2"), ResponseCode.NO_MESSAGE),
        (hide(first, -1), ResponseCode.INVALID_PARAMETER),
        (hide(first, 1000, receipt="x"), ResponseCode.MESSAGE_ILLEGAL),
    ]
    for command, code in cases:
        answer = await client.ask(command)
        assert (answer.code, bool(answer.remark)) == (code, True), answer.remark
    # None of these has acknowledged a message.
    assert (await client.ask(ack_batch([first, second]))).code == ResponseCode.SUCCESS
    await _nothing(client)


async def test_state_survives_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client:
        await client.ask(create_topic("T", 1))
        await _fill(client, 4)
        items = await _pop(client, count=2, invisible_ms=500)
        assert (await client.ask(ack(items[0]))).code == ResponseCode.SUCCESS
    async with running_broker(tmp_path) as broker, broker.client() as client:
        bodies: list[bytes] = []
        while len(bodies) < 3:
            bodies += [item.body for item in await _pop(client, poll_ms=_LONG_MS)]
        assert sorted(bodies) == [b"1", b"2", b"3"]


async def test_request_modes_and_assignments(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, broker.client() as client, broker.client() as member:
        await client.ask(create_topic("T", 4))
        await _join(member)
        assignments = await _assignment(client)
        assert [(_queue_id(item), item.mode.value) for item in assignments] == [
            (number, "PULL") for number in range(4)
        ]
        mode = SetMessageRequestModeRequestBody(
            topic="T", consumer_group="CG", mode=MessageRequestMode.POP, pop_share_queue_num=-1
        )
        answer = await client.ask(
            RemotingCommand.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode())
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        for bad, code in (
            ("Unknown", ResponseCode.TOPIC_NOT_EXIST),
            ("%RETRY%CG", ResponseCode.NO_PERMISSION),
        ):
            wrong = mode.model_copy(update={"topic": bad})
            refusal = await client.ask(
                RemotingCommand.request(RequestCode.SET_MESSAGE_REQUEST_MODE, body=wrong.encode())
            )
            assert refusal.code == code
    async with running_broker(tmp_path) as broker, broker.client() as client, broker.client() as member:
        await _join(member)
        (item,) = await _assignment(client)
        assert (_queue_id(item), item.mode) == (-1, MessageRequestMode.POP)
        answer = await client.ask(RemotingCommand.request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
        modes = MessageRequestModeSerializeWrapper.decode(answer.body).message_request_mode_map
        assert modes["T"]["CG"].mode is MessageRequestMode.POP


async def _join(member: RawClient) -> None:
    """Become a member. The broker may send notifications over this connection at any time."""
    answer, _ = await ask_among_notifications(member, heartbeat("c1", "CG", {"T": "*"}))
    assert answer.code == ResponseCode.SUCCESS


async def _assignment(client: RawClient) -> list[MessageQueueAssignment]:
    body = QueryAssignmentRequestBody(topic="T", consumer_group="CG", client_id="c1", strategy_name="AVG")
    answer = await client.ask(RemotingCommand.request(RequestCode.QUERY_ASSIGNMENT, body=body.encode()))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
    assert found is not None, answer.remark
    return found


def _queue_id(item: MessageQueueAssignment) -> int:
    assert item.message_queue is not None
    return item.message_queue.queue_id


async def test_metrics(broker: RunningBroker, client: RawClient) -> None:
    await _fill(client, 3)
    await _pop(client, count=2)
    await _pop(client, invisible_ms=100)
    pops = broker.pops
    await until(lambda: pops.redelivery.redelivered == 1)
    values = {family.name: list(family.series) for family in PopCollector(pops).collect()}
    assert values["rmq_pop_messages_in_flight"] == [((), 2)]
    assert values["rocketmq_pop_checkpoint_buffer_size"] == [((), 1)]
    assert values["rmq_pop_returned_total"] == [((), 1)]


async def test_nothing_is_popped_for_a_closed_connection(broker: RunningBroker, client: RawClient) -> None:
    peer = Peer(broker.broker.listeners.main.dispatcher)
    # More than one turn of requests: the pop waits for its turn while the connection closes.
    peer.send(*(send("T", b"%d" % number) for number in range(16)), pop("T"))
    peer.transport.lose(None)
    await until(lambda: peer.statistics.closed)

    assert len(popped(await client.ask(pop("T", count=32)))) == 16

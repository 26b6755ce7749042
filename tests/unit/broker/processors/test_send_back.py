"""Redelivery: messages sent back (code 36), and sends of consumers to their retry topic."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rmq_broker.store.api import Durability, StoreUnavailable
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.framing import encode_frame
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.pending_answer import PendingAnswer
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import request, send, sent
from tests.support.clock import START_MS
from tests.support.cold_log import make_cold
from tests.support.frames import decode_one
from tests.support.peers import Peer
from tests.unit.broker.delivery.parts import SCHEDULE, DeliveryBroker, inner
from tests.unit.broker.processors.parts import answer_of

GROUP = "g"
RETRY, DEAD = "%RETRY%g", "%DLQ%g"


class _Broker(DeliveryBroker):
    def __init__(self, folder: Path, **keys: object) -> None:
        super().__init__(folder, **keys)  # type: ignore[arg-type]
        self.processor = self.processors.sends.send_back
        self.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))

    async def back(self, offset: int, level: int = 0, **fields: object) -> RemotingCommand:
        """Send a message back."""
        return await answer_of(
            self.processor.send_back(Peer().connection, send_back(offset, level, **fields))
        )

    def send(self, command: RemotingCommand) -> RemotingCommand:
        """Send a message; return the answer as the network carries it."""
        answer = self.processors.sends.send.send(Peer().connection, decode_one(encode_frame(command)))
        assert isinstance(answer, bytes | RemotingCommand)
        return decode_one(answer) if isinstance(answer, bytes) else answer


def send_back(offset: int, level: int = 0, **fields: object) -> RemotingCommand:
    return request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        **{"group": GROUP, "offset": offset, "delayLevel": level, **fields},
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    made = _Broker(tmp_path)
    yield made
    made.close()


async def _refused(broker: _Broker, command: RemotingCommand) -> CommandError:
    with pytest.raises(CommandError) as refused:
        await answer_of(broker.processor.send_back(Peer().connection, command))
    assert broker.stored(SCHEDULE, 2) == broker.stored(RETRY) == broker.stored(DEAD) == []
    return refused.value


def _only(messages: list[MessageExt]) -> MessageExt:
    assert len(messages) == 1
    return messages[0]


# --- storing ---


async def test_a_message_is_redelivered_after_ten_seconds(broker: _Broker) -> None:
    place = broker.writer.put(inner("T", b"x", TAGS="paid", KEYS="k", UNIQ_KEY="U"))
    origin_id = _only(broker.stored("T")).offset_msg_id

    answer = await broker.back(place.physical_offset, originTopic="T", originMsgId="U")

    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
    await broker.pass_seconds(9.999)
    assert broker.stored(RETRY) == []
    await broker.pass_seconds(0.001)
    again = _only(broker.stored(RETRY))
    # The same properties as in a store of Apache's broker.
    assert again.properties == {
        **{"TAGS": "paid", "KEYS": "k", "UNIQ_KEY": "U", "WAIT": "false", "DELAY": "3"},
        **{"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": origin_id, "REAL_TOPIC": RETRY, "REAL_QID": "0"},
    }
    assert (again.body, again.flag, again.reconsume_times) == (b"x", 7, 1)
    assert (again.born_timestamp, again.born_host) == (START_MS, ("10.1.2.3", 4567))
    assert broker.statistics.sent_back.counts() == {(GROUP, "T"): 1}


async def test_n_redeliveries_then_a_dead_letter_with_its_origin(broker: _Broker) -> None:
    """A maximum of N means N + 1 deliveries."""
    broker.writer.put(inner("T", b"x", UNIQ_KEY="U"))
    seen = _only(broker.stored("T"))
    origin_id = seen.offset_msg_id
    deliveries = 1
    while not broker.stored(DEAD):
        await broker.back(seen.physical_offset, maxReconsumeTimes=3)
        await broker.pass_seconds(7200)
        if not broker.stored(DEAD):
            seen = broker.stored(RETRY)[-1]
            deliveries += 1
            assert seen.reconsume_times == deliveries - 1

    assert deliveries == 4
    dead = _only(broker.stored(DEAD))
    assert (dead.body, dead.reconsume_times, dead.queue_id) == (b"x", 4, 0)
    expected = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": origin_id, "UNIQ_KEY": "U", "DELAY": "0"}
    origin = {"DLQ_ORIGIN_TOPIC": "T", "DLQ_ORIGIN_MESSAGE_ID": "U"}
    assert dead.properties.items() >= (expected | origin).items()
    assert broker.statistics.dead_letters.counts() == {(GROUP, "T"): 1}
    assert broker.statistics.sent_back.counts() == {(GROUP, "T"): 4}


async def test_a_dead_letter_without_a_key_names_its_offset_id(broker: _Broker) -> None:
    place = broker.writer.put(inner("T"))
    origin_id = _only(broker.stored("T")).offset_msg_id
    await broker.back(place.physical_offset, -1)
    assert _only(broker.stored(DEAD)).properties["DLQ_ORIGIN_MESSAGE_ID"] == origin_id


async def test_a_compressed_body_stays_compressed(broker: _Broker) -> None:
    message = inner("T", b"\x00compressed")
    message.sys_flag = MessageSysFlag.COMPRESSED | MessageSysFlag.TRANSACTION_COMMIT
    place = broker.writer.put(message)
    await broker.back(place.physical_offset, 1)
    await broker.pass_seconds(1)
    record = broker.store.get(RETRY, 0, 0, 1, None).body
    assert b"\x00compressed" in record
    assert record[36:40] == (MessageSysFlag.COMPRESSED | MessageSysFlag.TRANSACTION_COMMIT).to_bytes(4, "big")


async def test_a_group_with_a_long_name(broker: _Broker) -> None:
    """Its retry topic is longer than other topics may be, and just short enough for a folder."""
    name = "l" * 248
    place = broker.writer.put(inner("T"))
    await broker.back(place.physical_offset, 1, group=name)
    await broker.pass_seconds(1)
    assert _only(broker.stored(f"%RETRY%{name}")).reconsume_times == 1
    broker.store.queues.write_out()


@pytest.mark.parametrize(("length", "level"), [(249, 1), (249, 0), (255, 1), (251, -1)])
async def test_a_group_whose_name_is_too_long_for_its_retry_topic(
    broker: _Broker, length: int, level: int
) -> None:
    place = broker.writer.put(inner("T"))
    with pytest.raises(CommandError) as refused:
        await broker.back(place.physical_offset, level, group="l" * length)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert "choose shorter names" in refused.value.remark
    broker.writer.put(inner("T"))
    broker.store.queues.write_out()  # the files can be created


async def test_a_message_with_the_largest_reconsume_times(broker: _Broker) -> None:
    message = inner("T")
    message.reconsume_times = 2**31 - 1
    place = broker.writer.put(message)
    assert (await broker.back(place.physical_offset)).code == ResponseCode.SUCCESS
    assert _only(broker.stored(DEAD)).reconsume_times == 2**31 - 1


async def test_a_group_without_retry_queues_has_no_redelivery(broker: _Broker) -> None:
    broker.groups.update(SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=0))
    place = broker.writer.put(inner("T"))
    end = broker.store.max_phy_offset()
    assert (await broker.back(place.physical_offset)).code == ResponseCode.SUCCESS
    assert broker.store.max_phy_offset() == end


async def test_a_message_that_is_not_in_memory(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    place = broker.writer.put(inner("T"))
    threads: list[str] = []
    record_at = broker.store.record_at

    def watched(offset: int) -> bytes | None:
        threads.append(threading.current_thread().name)
        return record_at(offset)

    make_cold(broker.store)
    monkeypatch.setattr(broker.store, "record_at", watched)

    assert (await broker.back(place.physical_offset)).code == ResponseCode.SUCCESS
    assert threads and "pull_cold" in threads[0]
    await broker.pass_seconds(0)
    assert broker.store.max_offset(SCHEDULE, 2) == 1
    with pytest.raises(CommandError, match="no message begins"):
        await broker.back(place.physical_offset + 1)


# --- refusals ---


@pytest.mark.parametrize("offset", [-1, -(2**63), 1, 10_000_000, 2**63 - 1])
async def test_an_offset_without_a_message_is_refused(broker: _Broker, offset: int) -> None:
    broker.writer.put(inner("T"))
    error = await _refused(broker, send_back(offset))
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert f"no message begins at offset {offset}" in error.remark


@pytest.mark.parametrize("kind", [MessageSysFlag.TRANSACTION_PREPARED, MessageSysFlag.TRANSACTION_ROLLBACK])
async def test_a_half_message_is_refused(broker: _Broker, kind: int) -> None:
    message = inner("T")
    message.sys_flag = kind
    place = broker.writer.put(message)
    error = await _refused(broker, send_back(place.physical_offset))
    assert error.code == ResponseCode.SYSTEM_ERROR


async def test_a_batch_that_is_one_record(broker: _Broker) -> None:
    message = inner("T")
    message.sys_flag = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    place = broker.writer.put(message)
    error = await _refused(broker, send_back(place.physical_offset))
    assert error.code == ResponseCode.MESSAGE_ILLEGAL
    assert "batch" in error.remark


async def test_an_unknown_group(tmp_path: Path) -> None:
    broker = _Broker(tmp_path, autoCreateSubscriptionGroup="false")
    place = broker.writer.put(inner("T"))
    error = await _refused(broker, send_back(place.physical_offset))
    assert error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    broker.close()


async def test_a_broker_without_write_permission_refuses(broker: _Broker) -> None:
    place = broker.writer.put(inner("T"))
    broker.settings.broker_permission = 4
    error = await _refused(broker, send_back(place.physical_offset))
    assert error.code == ResponseCode.NO_PERMISSION


async def test_properties_that_would_get_too_long(broker: _Broker) -> None:
    place = broker.writer.put(inner("T", a="x" * 32_700))
    error = await _refused(broker, send_back(place.physical_offset))
    assert error.code == ResponseCode.MESSAGE_ILLEGAL
    assert "limit is 32767" in error.remark


async def test_a_full_disk(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    place = broker.writer.put(inner("T"))

    def full(*_: object, **__: object) -> None:
        raise StoreUnavailable("no room for the message on the disk")

    monkeypatch.setattr(broker.store, "put", full)
    error = await _refused(broker, send_back(place.physical_offset))
    assert error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "Nothing was stored" in error.remark
    assert not broker.statistics.sent_back.total


@pytest.mark.parametrize("durability", list(Durability))
async def test_with_sync_flush_the_answer_waits_for_the_flush(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    listeners: list[Callable[[Durability], None]] = []
    place = broker.writer.put(inner("T"))
    monkeypatch.setattr(broker.store, "answers_when_durable", True)
    monkeypatch.setattr(broker.store, "when_durable", listeners.append)
    waiting = broker.processor.send_back(Peer().connection, send_back(place.physical_offset))

    assert isinstance(waiting, PendingAnswer)
    listeners[0](durability)
    # A SYNC_MASTER without replicas goes on alone.
    if durability in (Durability.DURABLE, Durability.NO_REPLICA):
        answer = await answer_of(waiting)
        assert isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS
    else:
        with pytest.raises(CommandError) as refused:
            await answer_of(waiting)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


# --- sends ---


async def test_a_delayed_send(broker: _Broker) -> None:
    answer = broker.send(send("T", b"x", properties={"DELAY": "2", "UNIQ_KEY": "U"}, reconsume_times=1))

    place = sent(answer)
    waiting = _only(broker.stored(SCHEDULE, 1))
    assert (place.msg_id, place.queue_id, place.queue_offset) == (waiting.offset_msg_id, 0, 0)
    await broker.pass_seconds(5)
    message = _only(broker.stored("T"))
    assert (message.body, message.reconsume_times) == (b"x", 1)
    assert message.properties.items() >= {"DELAY": "2", "UNIQ_KEY": "U", "CLUSTER": "DefaultCluster"}.items()


async def test_a_delayed_message_has_to_fit_with_the_added_properties(broker: _Broker) -> None:
    answer = broker.send(send("T", properties={"DELAY": "2", "UNIQ_KEY": "U", "a": "x" * 32_680}))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "the limit is 32767" in (answer.remark or "")
    assert broker.store.max_phy_offset() == 0


@pytest.mark.parametrize("times", [16, 17])
async def test_a_consumer_that_sends_to_its_retry_topic_itself(broker: _Broker, times: int) -> None:
    properties = {"DELAY": "1", "RETRY_TOPIC": "T", "UNIQ_KEY": "U"}
    command = send(RETRY, b"x", properties=properties, reconsume_times=times)

    answer = broker.send(command)
    await broker.pass_seconds(1)

    assert sent(answer).queue_offset == 0
    if times == 16:
        message = _only(broker.stored(RETRY))
        assert message.properties["DELAY"] == "1"
        assert broker.stored(DEAD) == []
        assert not broker.statistics.dead_letters.total
    else:
        message = _only(broker.stored(DEAD))
        assert message.properties["DELAY"] == "-1"
        assert broker.stored(RETRY) == broker.stored(SCHEDULE) == []
        assert broker.statistics.dead_letters.counts() == {(GROUP, "T"): 1}
    assert (message.body, message.reconsume_times) == (b"x", times)
    assert message.properties.items() >= {"RETRY_TOPIC": "T", "UNIQ_KEY": "U"}.items()


async def test_messages_given_up_by_ordered_consumers_are_dead_letters(broker: _Broker) -> None:
    """The route of a retry topic is not cached, because locks come and go."""
    command = send(RETRY, b"x", properties={"DELAY": "1"})
    locks = broker.services.clients.queue_locks
    for is_locked in (True, False, True):
        change = locks.lock if is_locked else locks.unlock
        change(GROUP, [MessageQueue(RETRY, "broker-a", 0)], "a client")
        sent(broker.send(command))
    assert (len(broker.stored(DEAD)), len(broker.stored(SCHEDULE))) == (2, 1)


async def test_the_retry_topic_of_an_unknown_group_is_refused(tmp_path: Path) -> None:
    broker = _Broker(tmp_path, autoCreateSubscriptionGroup="false")
    answer = broker.send(send(RETRY))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert broker.store.max_phy_offset() == 0
    broker.close()


async def test_a_dead_letter_can_be_sent_again(broker: _Broker) -> None:
    """As the admin tool does: with all its properties, to the dead letter topic."""
    place = broker.writer.put(inner("T", b"x", UNIQ_KEY="U"))
    await broker.back(place.physical_offset, -1)
    dead = _only(broker.stored(DEAD))

    sent(broker.send(send(DEAD, dead.body, properties=dict(dead.properties))))

    first, again = broker.stored(DEAD)
    kept = {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "UNIQ_KEY"}
    assert {name: again.properties[name] for name in kept} == {name: first.properties[name] for name in kept}
    assert again.body == b"x"

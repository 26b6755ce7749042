"""The send processor: requests in, answers out, and the caches in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.daemon.configuration import Change
from rmq_remoting.framing import encode_frame
from rmq_remoting.message import Message
from tests.support.broker_requests import send, send_batch, sent
from tests.support.frames import decode_one
from tests.support.local_broker import LocalBroker
from tests.support.peers import Peer


class _Broker(LocalBroker):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.processor = self.processors.sends.send

    def send(self, command: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Send a command as it comes from the network; return the answer as the network carries it."""
        answer = self.processor.send(peer.connection, decode_one(encode_frame(command)))
        assert isinstance(answer, bytes | RemotingCommand)
        return decode_one(answer) if isinstance(answer, bytes) else answer


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    broker = _Broker(tmp_path)
    yield broker
    broker.close()


async def test_both_serializations_are_answered_with_the_same_fields(broker: _Broker) -> None:
    peer = Peer()
    answers = [broker.send(send("T", serialization=form), peer) for form in Serialization]

    for number, answer in enumerate(answers):
        stored = broker.stored("T")[number]
        assert sent(answer).msg_id == stored.offset_msg_id
        assert sent(answer).msg_id.startswith("0A000001" + "00002A9F")
        assert sent(answer).queue_offset == number
        assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == ("DefaultRegion", "true")
        assert answer.is_response


async def test_stored_messages_are_counted(broker: _Broker) -> None:
    peer = Peer()
    broker.send(send("T", b"x" * 10), peer)
    broker.send(send_batch("T", [Message("T", b"y" * size) for size in (10, 2000)]), peer)
    broker.send(send("T", b""), peer)

    counted = broker.statistics.topics["T"]
    sizes = [message.store_size for message in broker.stored("T")]
    assert counted.put_messages == 3
    assert counted.put_bytes == sum(sizes) == counted.put_sizes.total
    assert counted.put_sizes.counts[:2] == [2, 1]


async def test_counts_start_again_after_a_topic_was_deleted(broker: _Broker) -> None:
    peer = Peer()
    broker.send(send("T"), peer)
    broker.topics.delete(["T"])
    broker.statistics.forget_topic("T")
    broker.store.delete_topics(["T"]).result()

    broker.send(send("T"), peer)

    assert broker.statistics.topics["T"].put_messages == 1


async def test_a_route_is_cached_until_a_topic_changes(broker: _Broker) -> None:
    peer = Peer()
    command = send("T", queue_id=1)
    broker.send(command, peer)
    routes = broker.processor.caches[0]
    broker.send(command, peer)
    assert routes.insertions == len(routes) == 1

    broker.topics.update(TopicConfig(topic_name="T", perm=4))

    assert broker.send(command, peer).code == ResponseCode.NO_PERMISSION


async def test_routes_of_targets_without_a_queue_are_cached_by_queue(broker: _Broker) -> None:
    peer = Peer()
    for _ in range(100):
        sent(broker.send(send("T", queue_id=-1), peer))

    assert sum(broker.store.max_offset("T", queue) for queue in range(4)) == 100
    assert len(broker.processor.caches[0]) == 4


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        (("10.1.2.3", 99), ("10.1.2.3", 99)),
        (("2001:db8::7", 99), ("2001:db8::7", 99)),
        (("::ffff:10.1.2.3", 99), ("10.1.2.3", 99)),  # as a listener for both families sees IPv4
        (("fe80::1%eth0", 99), ("fe80::1", 99)),
        (("", 0), ("0.0.0.0", 0)),  # of a peer that has gone already
    ],
)
async def test_the_born_host_is_the_producers_address(
    broker: _Broker, address: tuple[str, int], stored: tuple[str, int]
) -> None:
    peer = Peer()
    peer.connection.remote_address = address
    for _ in range(2):
        sent(broker.send(send("T"), peer))

    assert [message.born_host for message in broker.stored("T")] == [stored] * 2


async def test_only_some_settings_invalidate_the_routes(broker: _Broker) -> None:
    peer = Peer()
    broker.send(send("T"), peer)
    broker.processor.settings_changed(Change({"maxMessageSize": ("1", "2")}, {}))
    assert len(broker.processor.caches[0]) == 1

    broker.settings.region_id = "moon"
    broker.processor.settings_changed(Change({"regionId": ("DefaultRegion", "moon")}, {}))

    assert len(broker.processor.caches[0]) == 0
    assert broker.send(send("T"), peer).ext_fields["MSG_REGION"] == "moon"
    assert [message.properties["MSG_REGION"] for message in broker.stored("T")] == ["DefaultRegion", "moon"]


async def test_message_types_are_checked_with_message_type_check(broker: _Broker) -> None:
    peer = Peer()
    broker.topics.update(TopicConfig(topic_name="F"), {"+message.type": "FIFO"})
    sharded, batch = {"__SHARDINGKEY": "k"}, [Message("F", b"1"), Message("F", b"2")]
    assert broker.send(send("F"), peer).code == ResponseCode.SUCCESS
    broker.settings.message_type_check = True
    broker.processor.settings_changed(Change({"messageTypeCheck": ("false", "true")}, {}))

    refused = broker.send(send("F"), peer)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "F accepts messages of type FIFO, and this one is NORMAL" in (refused.remark or "")
    assert broker.send(send_batch("F", batch), peer).code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.send(send("F", properties=sharded), peer).code == ResponseCode.SUCCESS
    assert broker.send(send("N"), peer).code == ResponseCode.SUCCESS
    assert broker.send(send("N", properties={"DELAY": "1"}), peer).code == ResponseCode.MESSAGE_ILLEGAL
    assert len(broker.stored("F")) == 2

"""Batches over the wire: stored message by message, or refused as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.message import Message, MessageExt
from tests.support.broker_requests import pull, pulled, send, send_batch, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.rows import each_row

# What the broker adds to the properties of every message.
_BROKERS_OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}


async def _stored(client: RawClient, topic: str, queue_id: int = 0, offset: int = 0) -> list[MessageExt]:
    return pulled(await client.ask(pull(topic, queue_id=queue_id, offset=offset)))


async def _refused(client: RawClient, command: RemotingCommand) -> str:
    """The remark of a send that must be refused as illegal."""
    answer = await client.ask(command)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL, f"{answer.code}: {answer.remark}"
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert answer.remark
    return answer.remark


async def test_a_batch_is_stored_message_by_message(client: RawClient) -> None:
    messages = [
        Message("T", f"body {number}".encode(), tags=tag, flag=number, properties={"n": str(number)})
        for number, tag in enumerate(["a", None, "c"])
    ]
    for message in messages:
        message.unique_key = "own"

    answer = await client.ask(send_batch("T", messages, properties={"UNIQ_KEY": "BATCH", "WAIT": "true"}))

    stored = await _stored(client, "T")
    assert [message.body for message in stored] == [message.body for message in messages]
    assert [message.flag for message in stored] == [0, 1, 2]
    assert [message.tags for message in stored] == ["a", None, "c"]
    assert [message.queue_offset for message in stored] == [0, 1, 2]
    # Each gets the properties of the batch, which count where both have one.
    assert stored[1].properties == {"n": "1", "UNIQ_KEY": "BATCH", "WAIT": "true"} | _BROKERS_OWN
    assert sent(answer).msg_id == ",".join(message.offset_msg_id for message in stored)
    assert (sent(answer).queue_offset, sent(answer).queue_id) == (0, 0)
    assert sent(await client.ask(send("T"))).queue_offset == 3


async def test_messages_of_a_batch_without_a_key_of_its_own_keep_theirs(client: RawClient) -> None:
    messages = [Message("T", b"1"), Message("T", b"2")]
    messages[0].unique_key, messages[1].unique_key = "K1", "K2"

    sent(await client.ask(send_batch("T", messages)))

    assert [message.unique_key for message in await _stored(client, "T")] == ["K1", "K2"]


async def test_the_tags_of_a_batch_select_its_messages(client: RawClient) -> None:
    messages = [Message("T", b"1", tags="a"), Message("T", b"2"), Message("T", b"3", tags="b")]
    sent(await client.ask(send_batch("T", messages)))
    sent(await client.ask(send_batch("T", messages, properties={"TAGS": "all"}, queue_id=1)))

    by_tag = await client.ask(pull("T", subscription="a"))
    by_batch_tag = await client.ask(pull("T", queue_id=1, subscription="all"))

    assert [message.body for message in pulled(by_tag)] == [b"1"]
    assert len(pulled(by_batch_tag)) == 3


async def test_batches_fill_files_and_go_on_in_the_next(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, mappedFileSizeCommitLog=65_536, mappedFileSizeConsumeQueue=600) as broker,
        broker.client() as client,
    ):
        bodies = [b"%03d" % number * 100 for number in range(200)]
        for start in range(0, 200, 20):
            batch = [Message("T", body) for body in bodies[start : start + 20]]
            sent(await client.ask(send_batch("T", batch)))

        read: list[bytes] = []
        while len(read) < 200:
            read += [message.body for message in await _stored(client, "T", offset=len(read))]
        assert read == bodies
        assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 1

        too_large = [Message("T", b"x" * 1000) for _ in range(60)]
        await _refused(client, send_batch("T", too_large))
        await _refused(client, send("T", b"x" * 65_536))
        assert sent(await client.ask(send("T"))).queue_offset == 200


def _damaged(position: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda batch: batch[:position] + value + batch[position + len(value) :]


# Two messages, each 22 bytes, 4 bytes of body, and 4 bytes of properties.
_ITEM = b"\x00\x00\x00\x1e" + bytes(8) + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x04body" + b"\x00\x04a\x01b\x02"


@each_row(
    ("damage", "remark"),
    [
        (lambda batch: batch[:-1], "message 1 of the batch has a properties length of 4"),
        (lambda batch: batch + b"\x00", "message 2 of the batch ends within a message"),
        (lambda batch: batch[: len(_ITEM) + 21], "message 1 of the batch ends within a message"),
        (_damaged(16, b"\xff\xff\xff\xff"), "message 0 of the batch has a body length of -1"),
        (_damaged(16, b"\x7f\xff\xff\xff"), "message 0 of the batch has a body length of 2147483647"),
        (_damaged(16, b"\x00\x00\x00\x05"), "message 0 of the batch"),
        (_damaged(24, b"\xff\xff"), "message 0 of the batch has a properties length of 65535"),
        (_damaged(26, b"\xff"), "message 0 of the batch has properties that are not UTF-8"),
    ],
)
async def test_a_damaged_batch_is_refused_as_a_whole(
    broker: RunningBroker, client: RawClient, damage: Callable[[bytes], bytes], remark: str
) -> None:
    batch = _ITEM * 2
    sent(await client.ask(send_batch("Whole", batch)))

    said = await _refused(client, send_batch("T", damage(batch)))

    assert remark in said
    assert broker.store.max_offset("T", 0) == 0


async def test_sizes_magic_and_checksums_of_a_batch_are_not_looked_at(client: RawClient) -> None:
    """As in Apache's: clients write zeros there, and what they write is not used."""
    sent(await client.ask(send_batch("T", b"\xff" * 12 + _ITEM[12:])))
    (message,) = await _stored(client, "T")
    assert (message.body, message.properties["a"]) == (b"body", "b")


async def test_a_batch_item_with_too_many_properties_is_refused(client: RawClient) -> None:
    properties = b"v\x01" + b"x" * 32_740 + b"\x02"
    item = _ITEM[:24] + len(properties).to_bytes(2, "big") + properties

    said = await _refused(client, send_batch("T", _ITEM + item))

    assert "message 1 of the batch has properties of" in said


async def test_a_batch_to_a_retry_topic_is_refused(client: RawClient) -> None:
    said = await _refused(client, send_batch("%RETRY%Group", [Message("T", b"x")]))
    assert "%RETRY%Group" in said

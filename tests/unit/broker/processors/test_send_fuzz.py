"""Fuzzing: any send is refused with a code, or stored so that consumers can read it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_broker.store.api import MessageStore
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import encode_frame
from rmq_remoting.message import Message
from rmq_remoting.message_batch import encode_batch
from rmq_remoting.message_codec import decode_messages
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_requests import send
from tests.support.examples import examples
from tests.support.frames import decode_one
from tests.support.local_broker import LocalBroker
from tests.support.peers import Peer

_INT32 = st.one_of(st.integers(0, 8), st.integers(-(1 << 31), (1 << 31) - 1))
_TEXT = st.text(alphabet="\x01\x02ab=TAGSDELY0Ü", max_size=40)
_PROPERTIES = st.one_of(
    _TEXT,
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    *("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "TRAN_MSG", "POP_CK", "CLUSTER", "a"),
                    *("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS"),
                ]
            ),
            st.one_of(_TEXT, st.sampled_from(["1", "18", "true", "9" * 30])),
        ),
        max_size=4,
    ).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)),
)


@st.composite
def _batch_bodies(draw: st.DrawFn) -> bytes:
    """Batches, mostly with one or two wrong bytes."""
    count = draw(st.integers(1, 4))
    batch = bytearray(
        encode_batch([Message("T", b"x" * number, properties={"a": "b"}) for number in range(count)])
    )
    for _ in range(draw(st.integers(0, 2))):
        batch[draw(st.integers(0, len(batch) - 1))] = draw(st.integers(0, 255))
    return bytes(batch[: draw(st.integers(0, len(batch)))] if draw(st.booleans()) else batch)


@st.composite
def _sends(draw: st.DrawFn) -> RemotingCommand:
    batch = draw(st.booleans())
    return send(
        draw(st.sampled_from(["T", "U", "%RETRY%CG", "bad topic", " "])),
        draw(_batch_bodies() if batch else st.binary(max_size=50)),
        code=draw(
            st.sampled_from(
                [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
            )
        ),
        queue_id=draw(st.integers(-2, 5)),
        properties=draw(_PROPERTIES).encode(),
        sys_flag=draw(_INT32),
        flag=draw(_INT32),
        reconsume_times=draw(_INT32),
        born_ms=draw(st.one_of(st.just(1_700_000_000_000), st.integers(-(1 << 63), (1 << 63) - 1))),
        batch=batch,
        unit_mode=draw(st.booleans()),
    )


class _Broker(LocalBroker):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.connection = Peer().connection
        self.send = self.processors.sends.send.send  # built in the running loop

    def ends(self) -> dict[tuple[str, int], int]:
        return {(queue.topic, queue.queue_id): queue.max_offset for queue in self.store.queues}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Broker]:
    root = tmp_path_factory.mktemp("store")
    loop = asyncio.new_event_loop()

    async def made() -> _Broker:
        return _Broker(root)

    broker = loop.run_until_complete(made())
    yield broker
    broker.close()
    loop.close()
    # A start that has to read the whole log finds the same messages.
    (root / "rmq_boot_id").write_text("another boot")
    again = MessageStore(broker.settings, broker.settings, broker.settings, time.time)
    again.open()
    assert again.max_phy_offset() == _LOG_END[-1]
    again.close()


_LOG_END = [0]


@settings(max_examples=examples(300))
@given(_sends())
def test_a_send_is_refused_or_can_be_read(broker: _Broker, command: RemotingCommand) -> None:
    before = broker.ends()
    answer = broker.send(broker.connection, decode_one(encode_frame(command)))

    assert isinstance(answer, bytes | RemotingCommand)
    response = decode_one(answer) if isinstance(answer, bytes) else answer
    stored = {queue: end - before.get(queue, 0) for queue, end in broker.ends().items()}
    if response.code != ResponseCode.SUCCESS:
        assert response.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER)
        assert response.remark
        assert not any(stored.values())
        return
    offset = int(response.ext_fields["queueOffset"])
    message_ids = response.ext_fields["msgId"].split(",")
    [((topic, queue_id), count)] = [(queue, count) for queue, count in stored.items() if count]
    assert count == len(message_ids)
    sent_to = command.ext_fields.get("b") or command.ext_fields["topic"]
    if topic == "SCHEDULE_TOPIC_XXXX":
        assert "DELAY" in (command.ext_fields.get("i") or command.ext_fields["properties"])
    elif topic == "rmq_sys_wheel_timer":
        assert "TIMER_D" in (command.ext_fields.get("i") or command.ext_fields["properties"])
    elif topic == "RMQ_SYS_TRANS_HALF_TOPIC":
        sys_flag = int(command.ext_fields.get("f") or command.ext_fields["sysFlag"])
        is_prepared = MessageSysFlag.transaction_type(sys_flag) == MessageSysFlag.TRANSACTION_PREPARED
        assert is_prepared or "TRAN_MSG" in (command.ext_fields.get("i") or command.ext_fields["properties"])
    elif topic == "%DLQ%CG":
        assert sent_to == "%RETRY%CG"
    else:
        assert (topic, queue_id) == (sent_to, int(response.ext_fields["queueId"]))
    read = broker.store.get(topic, queue_id, offset, 32, None)
    messages = decode_messages(read.body, decompress_bodies=False, check_crc=True)
    assert [message.offset_msg_id for message in messages] == message_ids
    assert [message.queue_offset for message in messages] == list(range(offset, offset + len(messages)))
    assert {(message.topic, message.queue_id) for message in messages} == {(topic, queue_id)}
    _LOG_END[0] = broker.store.max_phy_offset()

"""A broker with transactions in virtual time, and producers without sockets."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.delivery.message_writer import Written
from rmq_broker.transactions.half_messages import HalfMessages
from rmq_broker.transactions.service import TransactionService
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import LanguageCode, RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader
from rmq_remoting.headers.transaction_end import EndTransactionRequestHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.clock import Clock
from tests.support.local_broker import STORE_HOST
from tests.support.peers import Peer
from tests.support.waiting import loop_passes
from tests.unit.broker.delivery.parts import DeliveryBroker, inner

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP, TOPIC = "shop", "T"
SYSTEM_GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK = MessageSysFlag.TRANSACTION_COMMIT, MessageSysFlag.TRANSACTION_ROLLBACK


class TransactionBroker(DeliveryBroker):
    """A broker with transactions; `restarted` starts another after a kill of the process."""

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        super().__init__(folder, clock, **keys)
        self._keys = keys
        self.topics.update(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        self.service = self.services.transactions

    @property
    def halves(self) -> HalfMessages:
        """The half messages under way."""
        return self.service.halves

    def replace_service(self) -> None:
        """Make a new transaction service on the same store."""
        self.service = TransactionService(
            self.settings,
            self.topics,
            self.producers,
            self.offsets,
            self.store,
            self.writer,
            STORE_HOST,
            self.clock.clocks,
            self.services.escape,
        )

    def send(self, body: bytes = b"body", *, queue_id: int = 2, **properties: str) -> Written:
        """Send a message in a transaction."""
        fields = {"UNIQ_KEY": body.decode(), "PGROUP": GROUP, "TRAN_MSG": "true", **properties}
        message = inner(TOPIC, body, queue_id=queue_id)
        message.set_properties(fields)
        return self.service.preparing.put(message, GROUP, fields["UNIQ_KEY"].encode())

    def end(self, state: int, place: Written, **fields: object) -> None:
        """Report an outcome. Raises as the broker refuses it."""
        header = EndTransactionRequestHeader(
            **{  # type: ignore[arg-type]
                "commit_log_offset": place.physical_offset,
                "commit_or_rollback": state,
                "msg_id": "",
                "producer_group": GROUP,
                "tran_state_table_offset": place.queue_offset,
                **fields,
            }
        )
        record = self.store.record_at(header.commit_log_offset)
        self.service.ending.end(header, record)

    def join(self, group: str = GROUP) -> Peer:
        """Connect a producer of a group."""
        peer = Peer()
        client = ConnectedClient(peer.connection, "c", LanguageCode.JAVA, 0, self.clock.steady_ms())
        self.producers.register_all([group], client)
        return peer

    async def check_after(self, seconds: float) -> None:
        """Let time pass, then check the transactions."""
        self.clock.pass_seconds(seconds)
        await self.service.checks.run()
        await loop_passes()

    async def restarted(self, *, offsets_are_kept: bool = True) -> TransactionBroker:
        """Restart after a kill, with the offsets as they were, or with none as Apache's before any commit."""
        self.store.close()
        self.clock.restart()
        after = TransactionBroker(self.folder, self.clock, **self._keys)
        if offsets_are_kept:
            after.offsets.decode(self.offsets.encode())
        await after.service.load()
        return after

    def ops(self) -> list[bytes]:
        """Return the bodies of all op messages."""
        return self.bodies(OP)


def question(peer: Peer) -> tuple[CheckTransactionStateRequestHeader, RemotingCommand]:
    """Return the last check request that a producer received."""
    command = peer.received[-1]
    assert command.code == RequestCode.CHECK_TRANSACTION_STATE and command.is_oneway
    return CheckTransactionStateRequestHeader.decode(command.ext_fields), command


def place_of(header: CheckTransactionStateRequestHeader) -> Written:
    """Return the place of the half message that a check request names."""
    return Written(header.commit_log_offset, header.tran_state_table_offset, 0)


def without(message: MessageExt, *names: str) -> dict[str, str]:
    """Return the properties of a message without some."""
    return {name: value for name, value in message.properties.items() if name not in names}

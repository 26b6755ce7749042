"""The blocking producer and its transactions."""

from __future__ import annotations

from concurrent.futures import Future
from types import TracebackType
from typing import Self

from rmq_remoting.message import Message
from rmq_remoting.message_queue import MessageQueue

from .. import results as _results
from ..checks import Seconds
from ..producer import producer as _producer
from ..producer import transactions as _transactions
from ..producer.selection import QueueSelector
from .background import run, submit
from .wrapping import BlockingObject, blocking, constructs, on_loop, on_loop_wrapped


class Transaction:
    """A message that reaches consumers only if this transaction is committed; see rmq_client.Transaction."""

    def __init__(self, transaction: _transactions.Transaction) -> None:
        self._asyncio = transaction

    commit = blocking(_transactions.Transaction.commit)
    rollback = blocking(_transactions.Transaction.rollback)
    leave_open = blocking(_transactions.Transaction.leave_open)

    @property
    def message(self) -> Message:
        """The message, with its id."""
        return self._asyncio.message

    @property
    def msg_id(self) -> str:
        """The id of the message, which is also the id of the transaction."""
        return self._asyncio.msg_id

    @property
    def sent(self) -> _results.SendResult:
        """Where the half message is stored. Raises UsageError before it was sent."""
        return self._asyncio.sent

    def __enter__(self) -> Self:
        run(self._asyncio.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._asyncio.__aexit__(kind, error, trace))


class Producer(BlockingObject[_producer.Producer]):
    """Sends messages; see rmq_client.Producer."""

    @constructs(_producer.Producer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = on_loop(_producer.Producer.add_hook)
    send = blocking(_producer.Producer.send)
    send_oneway = blocking(_producer.Producer.send_oneway)
    send_batch = blocking(_producer.Producer.send_batch)
    send_in_transaction = blocking(_producer.Producer.send_in_transaction)
    request = blocking(_producer.Producer.request)
    reply = blocking(_producer.Producer.reply)
    recall = blocking(_producer.Producer.recall)
    queues = blocking(_producer.Producer.queues)
    transaction = on_loop_wrapped(Transaction, _producer.Producer.transaction)

    def encode(self, message: Message, value: object) -> Message:
        """Return a copy of a message with `value` as its body; see rmq_client.Producer.encode."""
        return self._asyncio.encode(message, value)

    def send_nowait(
        self,
        message: Message,
        value: object = ...,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        timeout_seconds: Seconds | None = None,
    ) -> Future[_results.SendResult]:
        """Send a message as `send` does, and return the future of its result without waiting.

        For many messages in flight at a time. The future raises what `send` raises; cancelling it is no
        recall. It may be dropped: `stop` waits for all sends.
        """
        sending = self._asyncio.send(
            message, value, queue=queue, selector=selector, key=key, timeout_seconds=timeout_seconds
        )
        return submit(sending)

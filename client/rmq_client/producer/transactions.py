"""Transactions of one producer: half messages, outcomes and checks.

Source: Apache RocketMQ 5.3.3, DefaultMQProducerImpl.sendMessageInTransaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from rmq_remoting.errors import RequestError
from rmq_remoting.framing import encode_frame
from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_ids import parse_offset_message_id
from rmq_remoting.message_properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.tasks import shielded

from ..callables import is_coroutine_function
from ..errors import ClientError, TransactionNotBegun, UsageError, request_failure
from ..hooks.send import SendHooks, TransactionEnd
from ..namespaces import Namespace
from ..network.instance import ClientInstance
from ..results import SendResult, SendStatus
from ..transactions import HalfMessagePosition, TransactionState, end_request
from .encoding import traced_region
from .sender import MessageSender

log = logging.getLogger(__name__)

_DELAYS: Final = (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
)
# Checks that run at the same time.
_CHECKS_AT_ONCE: Final = 16

Send = Callable[..., Coroutine[Any, Any, SendResult]]
"""`Producer.send`."""

TransactionCheck = (
    Callable[[MessageExt], TransactionState] | Callable[[MessageExt], Awaitable[TransactionState]]
)
"""Returns the outcome of the transaction of a message, for brokers that ask. A function runs in a thread."""

TransactionWork = Callable[[Message], TransactionState] | Callable[[Message], Awaitable[TransactionState]]
"""The local work of a transaction; returns its outcome. A function runs in a thread."""


@dataclass(slots=True)
class TransactionResult:
    """Where a message of a transaction is stored, and the state that the broker was told."""

    sent: SendResult
    state: TransactionState


class Transaction:
    """A message that reaches consumers only if this transaction is committed.

    Created by `Producer.transaction`.

    As an `async with` it commits at the end of the block, and rolls back if an exception leaves it. It can be
    ended inside the block, too. The broker asks for the outcome of an open transaction (`check_transaction`).
    """

    def __init__(self, transactions: Transactions, message: Message, where: dict[str, Any]) -> None:
        self.message = message  # with its id
        self.state: TransactionState | None = None  # the state that the broker was told
        self._transactions = transactions
        self._where = where
        self._sent: SendResult | None = None
        # The outcome, told or not: a broker that was told one outcome must not be told another.
        self._outcome: TransactionState | None = None
        self._tell_lock = asyncio.Lock()

    @property
    def sent(self) -> SendResult:
        """Where the half message is stored. Raises UsageError before it was sent."""
        if self._sent is None:
            raise UsageError(
                "the transaction has not begun: begin a block by `async with producer.transaction(message)` "
                "(`with` in rmq_client.blocking)"
            )
        return self._sent

    @property
    def msg_id(self) -> str:
        """The id of the message, which is also the id of the transaction."""
        return self.message.unique_key or ""

    async def begin(self) -> None:
        """Send the half message. Raises TransactionNotBegun, and ClientError as `send`."""
        if self._sent is not None:
            raise UsageError("a transaction begins once: create another one")
        self._sent = await self._transactions.send_half(self.message, **self._where)
        if self._sent.status is not SendStatus.SEND_OK:
            await self.rollback(f"the message is not as durable as configured: {self._sent.status.name}")
            raise TransactionNotBegun(
                f"the message to {self.message.topic} was stored, but not as durably as its broker is "
                f"configured ({self._sent.status.name}): it was rolled back"
            )

    async def commit(self) -> None:
        """Commit the message. Raises ClientError if the broker cannot be told.

        The outcome is final: after an error, or a cancellation, the call can be repeated, but no other made.
        """
        await self._end(TransactionState.COMMIT)

    async def rollback(self, remark: str | None = None) -> None:
        """Roll the message back; the remark is for the broker's log."""
        await self._end(TransactionState.ROLLBACK, remark)

    async def leave_open(self, remark: str | None = None) -> None:
        """Leave the outcome unknown: the broker will ask a producer of the group."""
        await self._end(TransactionState.UNKNOWN, remark)

    async def _end(self, state: TransactionState, remark: str | None = None) -> None:
        if self.state not in (None, TransactionState.UNKNOWN):
            raise UsageError(f"the transaction has ended already: {self.state.name}")
        if self._outcome not in (None, TransactionState.UNKNOWN, state):
            raise UsageError(
                f"the outcome {self._outcome.name} is final; the broker may know it. Only the same call "
                "can be repeated"
            )
        sent = self.sent
        self._outcome = state
        await self._transactions.run_to_end(self._tell(sent, state, remark))

    async def _tell(self, sent: SendResult, state: TransactionState, remark: str | None) -> None:
        async with self._tell_lock:
            if self.state is not state:
                await self._transactions.tell(self.message, sent, state, remark)
                self.state = state

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state is not None:
            return
        if error is None:
            await self._end(self._outcome or TransactionState.COMMIT)
        elif self._outcome is None:
            await self._fail(TransactionState.ROLLBACK, f"rolled back: {_describe(error)}")

    async def _fail(self, state: TransactionState, remark: str) -> None:
        """End the transaction after an error that its caller must see."""
        try:
            await self._end(state, remark)
        except ClientError as failure:
            log.warning(
                "transaction outcome not sent outcome=%s id=%s cause=%s; the broker will ask",
                state.name,
                self.msg_id,
                failure,
            )

    async def run(self, work: TransactionWork) -> TransactionResult:
        """Send the message, run the work and tell its result; an error of it leaves the transaction open."""
        await self.begin()
        try:
            state = _require_state(await _call(work, self.message))
        except BaseException as error:
            remark = f"the work of the transaction failed: {_describe(error)}"
            await self._fail(TransactionState.UNKNOWN, remark)
            raise
        await self._end(state)
        return TransactionResult(self.sent, state)


class Transactions:
    """The transactions of one producer. Belongs to its loop."""

    def __init__(
        self,
        instance: ClientInstance,
        sender: MessageSender,
        send: Send,
        group: str,
        check: TransactionCheck | None,
        hooks: SendHooks | None = None,
    ) -> None:
        """`group` is the full name."""
        self._instance = instance
        self._namespace = Namespace(instance.settings.namespace)
        self._hooks = hooks
        self._sender = sender
        self._send = send
        self._group = group
        self._check = check
        self._loop = asyncio.get_running_loop()
        self._bridge = instance.bridge()
        self._checks_at_once = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._ending: set[asyncio.Task[None]] = set()

    # --- lifecycle ---

    async def start(self) -> None:
        """Answer brokers' checks from now on."""
        if self._check is not None:
            await self._instance.run(self._register_check())

    async def stop(self) -> None:
        """Send pending outcomes, and leave brokers' checks to the other producers of the group."""
        if self._ending:
            await asyncio.wait(self._ending)
        if self._check is not None:
            await self._instance.run(self._unregister_check())

    async def _register_check(self) -> None:
        self._instance.transaction_checks.add(self._group, self._answer)

    async def _unregister_check(self) -> None:
        self._instance.transaction_checks.remove(self._group, self._answer)

    # --- one transaction ---

    def new(self, message: Message, where: dict[str, Any]) -> Transaction:
        """Return a transaction that has not begun. Raises UsageError for a delayed message."""
        delays = [name for name in _DELAYS if name in message.properties]
        if delays:
            raise UsageError(
                f"a message in a transaction cannot be delayed: property {delays[0]} is "
                f"{message.properties[delays[0]]!r}"
            )
        half = Message(message.topic, message.body, flag=message.flag)
        half.properties = {
            **message.properties,
            PROPERTY_TRANSACTION_PREPARED: "true",
            PROPERTY_PRODUCER_GROUP: self._group,
        }
        half.unique_key = message.unique_key or self._instance.unique_keys.next_key()
        return Transaction(self, half, where)

    async def send_half(self, message: Message, **where: Any) -> SendResult:
        """Send a half message. Raises ClientError as `send`."""
        return await self._send(message, **where)

    async def run_to_end(self, telling: Coroutine[Any, Any, None]) -> None:
        """Send an outcome to the end, even if its caller is cancelled in the meantime."""
        task = asyncio.ensure_future(telling)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        try:
            await shielded(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def tell(
        self, message: Message, sent: SendResult, state: TransactionState, remark: str | None
    ) -> None:
        """Tell the broker the outcome of a transaction.

        Raises ClientError if it cannot be sent, and the broker cannot ask for it either.
        """
        place = HalfMessagePosition(
            self._namespace.wrap(message.topic),
            sent.queue.broker_name,
            parse_offset_message_id(sent.offset_msg_id).physical_offset,
            sent.queue_offset,
            sent.msg_id,
            sent.msg_id,
        )
        request = end_request(
            self._group, place, state, remark=remark, serialization=self._instance.settings.serialization
        )
        try:
            await self._post(message.topic, sent.queue, encode_frame(request))
        except ClientError as error:
            if self._check is None:
                raise
            log.warning(
                "transaction outcome not sent outcome=%s id=%s cause=%s; the broker will ask",
                state.name,
                sent.msg_id,
                error,
            )
            return
        if self._hooks is not None:
            self._hooks.transaction_ended(
                TransactionEnd(
                    self._hooks.group, message, sent.msg_id, state, sent.broker_address, sent.region_id
                )
            )

    async def _post(self, topic: str, queue: MessageQueue, frame: bytes) -> None:
        publish_info = await self._sender.publish_info(topic, self._instance.settings.connect_timeout_seconds)
        endpoint = self._sender.endpoint_of(publish_info, queue)
        await self._sender.connect(endpoint)
        try:
            await self._bridge.send_oneway(endpoint.address, frame)
        except RequestError as error:
            raise request_failure(error, f"end of a transaction on {endpoint.broker_name}") from error

    # --- checks ---

    async def _answer(self, message: MessageExt) -> tuple[TransactionState, str | None]:
        """On the network loop: have the check called on the producer's loop."""
        checking = self._checked_state(message)
        try:
            future = asyncio.run_coroutine_threadsafe(checking, self._loop)
        except RuntimeError as error:
            checking.close()
            return TransactionState.UNKNOWN, f"the producer's loop has ended: {error}"
        return await asyncio.wrap_future(future)

    async def _checked_state(self, message: MessageExt) -> tuple[TransactionState, str | None]:
        assert self._check is not None
        self._namespace.unwrap_topics([message])
        remark = None
        async with self._checks_at_once:
            try:
                state = _require_state(await _call(self._check, message))
            except Exception as error:
                log.exception("transaction check failed id=%s; the broker is told UNKNOWN", message.msg_id)
                state, remark = TransactionState.UNKNOWN, f"the check failed: {_describe(error)}"
        if self._hooks is not None:
            self._hooks.transaction_ended(_checked_end(self._hooks.group, message, state))
        return state, remark


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("transaction outcome not sent cause=%s", error)


def _checked_end(group: str, message: MessageExt, state: TransactionState) -> TransactionEnd:
    host, port = message.store_host
    return TransactionEnd(
        group,
        message,
        message.msg_id,
        state,
        f"{host}:{port}",
        traced_region(message.properties),
        from_check=True,
    )


async def _call(function: Callable[[Any], Any], argument: object) -> object:
    """Await a coroutine function, or run another function in a thread."""
    if is_coroutine_function(function):
        return await function(argument)
    return await asyncio.to_thread(function, argument)


def _require_state(state: object) -> TransactionState:
    """Return the state. Raises UsageError for another object."""
    if not isinstance(state, TransactionState):
        raise UsageError(f"a TransactionState must be returned, not {state!r}")
    return state


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

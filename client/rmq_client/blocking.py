"""The same classes for programs without an event loop.

Each method runs the asyncio method on a background loop and waits for it. Arguments, results and errors are
the same. Objects may be used from several threads, but not in callbacks that run on the background loop
(those of `listen_to_queues`, and coroutines as listeners). A blocking call there raises UsageError.

::

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send(Message("orders", b"..."))
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_queue import MessageQueue

from . import raw_pulls as _raw_pulls
from . import results as _results
from .admin import admin as _admin
from .checks import Seconds
from .consumer.deduplication import deduplicator as _deduplicator
from .consumer.deduplication.store import ClaimResult, DeduplicationStore
from .consumer.processing.listener import ConsumeResult, Listener, inspect_listener
from .consumer.pull import pull_consumer as _pull
from .consumer.push import push_consumer as _push
from .consumer.simple import simple_consumer as _simple
from .errors import NotRunning, UsageError
from .forks import after_fork_in_child
from .lifetime import Lifetime
from .loop_thread import LoopThread
from .producer import producer as _producer
from .producer import transactions as _transactions
from .producer.selection import QueueSelector

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")


A = TypeVar("A", bound=Lifetime)
B = TypeVar("B")


class _Background:
    """The loop that all blocking objects of a process share, started at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it. An interrupted wait cancels the coroutine.

        Raises UsageError for a caller that runs on that loop: it would wait for itself for ever.
        """
        thread = self._started()
        if thread.is_current():
            coroutine.close()
            raise UsageError(
                "blocking call in a callback on the background loop: it would wait for itself; make the "
                "call from another thread"
            )
        future = thread.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop, and return the future of its result. Cancelling it cancels both."""
        return self._started().submit(coroutine)

    def _started(self) -> LoopThread:
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("rmq-blocking")
        return self._thread


_background = _Background()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of the blocking objects and wait: for many calls side by side.

    Raises UsageError on that loop itself.
    """
    return _background.run(coroutine)


def _reset_after_fork() -> None:
    """Forget the loop in a forked process, which does not have its thread."""
    global _background  # noqa: PLW0603
    _background = _Background()


after_fork_in_child(_reset_after_fork)


class _BlockingObject(Generic[A]):
    """Wraps an asyncio object, and starts and stops it."""

    _asyncio: A

    def start(self) -> None:
        """Start the object."""
        _background.run(self._asyncio.start())

    def stop(self) -> None:
        """Stop the object."""
        _background.run(self._asyncio.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _background.run(self._asyncio.__aexit__(kind, error, trace))


def _constructs(
    kind: Callable[P, B],
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Any, P], None]]:
    """Turn `__init__` into a constructor with the parameters of the asyncio class, which it creates."""

    def decorate(_: Callable[[Any], None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(kind.__init__)
        def make(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            self._asyncio = kind(*args, **kwargs)

        return make

    return decorate


def _blocking(
    method: Callable[Concatenate[B, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs an asyncio method and waits for it."""

    @functools.wraps(method)
    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return _background.run(method(self._asyncio, *args, **kwargs))

    return wait


def _on_loop(method: Callable[Concatenate[B, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method for one that does not wait itself, run on the loop of the object."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def there() -> T:
            return method(self._asyncio, *args, **kwargs)

        return _background.run(there())

    return call


def _on_loop_wrapped(
    face: Callable[[T], F], method: Callable[Concatenate[B, P], T]
) -> Callable[Concatenate[Any, P], F]:
    """Return a method for one that returns an asyncio object, which `face` wraps."""
    call = _on_loop(method)

    @functools.wraps(method)
    def make(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> F:
        return face(call(self, *args, **kwargs))

    return make


class Transaction:
    """A message that reaches consumers only if this transaction is committed; see rmq_client.Transaction."""

    def __init__(self, transaction: _transactions.Transaction) -> None:
        self._asyncio = transaction

    commit = _blocking(_transactions.Transaction.commit)
    rollback = _blocking(_transactions.Transaction.rollback)
    leave_open = _blocking(_transactions.Transaction.leave_open)

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
        _background.run(self._asyncio.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _background.run(self._asyncio.__aexit__(kind, error, trace))


class Producer(_BlockingObject[_producer.Producer]):
    """Sends messages; see rmq_client.Producer."""

    @_constructs(_producer.Producer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = _on_loop(_producer.Producer.add_hook)
    send = _blocking(_producer.Producer.send)
    send_oneway = _blocking(_producer.Producer.send_oneway)
    send_batch = _blocking(_producer.Producer.send_batch)
    send_in_transaction = _blocking(_producer.Producer.send_in_transaction)
    request = _blocking(_producer.Producer.request)
    reply = _blocking(_producer.Producer.reply)
    recall = _blocking(_producer.Producer.recall)
    queues = _blocking(_producer.Producer.queues)
    transaction = _on_loop_wrapped(Transaction, _producer.Producer.transaction)

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
        return _background.submit(sending)


class PushConsumer(_BlockingObject[_push.PushConsumer]):
    """Delivers messages to a listener, which should be a function; see rmq_client.PushConsumer."""

    @_constructs(_push.PushConsumer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = _on_loop(_push.PushConsumer.add_hook)
    wait_ready = _blocking(_push.PushConsumer.wait_ready)
    wait_stopped = _blocking(_push.PushConsumer.wait_stopped)
    subscribe = _blocking(_push.PushConsumer.subscribe)
    unsubscribe = _blocking(_push.PushConsumer.unsubscribe)
    commit = _blocking(_push.PushConsumer.commit)
    suspend = _on_loop(_push.PushConsumer.suspend)
    resume = _on_loop(_push.PushConsumer.resume)
    assigned_queues = _blocking(_push.PushConsumer.assigned_queues)
    statistics = _blocking(_push.PushConsumer.statistics)
    beginning_offsets = _blocking(_push.PushConsumer.beginning_offsets)
    end_offsets = _blocking(_push.PushConsumer.end_offsets)
    committed_offsets = _blocking(_push.PushConsumer.committed_offsets)
    committed = _blocking(_push.PushConsumer.committed)
    lag = _blocking(_push.PushConsumer.lag)


def _each_message(consumer: _pull.PullConsumer | _simple.SimpleConsumer) -> Iterator[MessageExt]:
    """Yield messages until the consumer is stopped; the background loop hands over many at a time."""
    ahead = consumer.read_ahead
    began = time.perf_counter()
    while consumer.is_running:
        message = ahead.next()
        if message is not None:
            if ahead.taken is not None:
                ahead.taken([message], time.perf_counter() - began)
            yield message
            began = time.perf_counter()
            continue
        try:
            _background.run(ahead.fill())
        except NotRunning:
            if consumer.is_running:
                raise


class _BodyDecoder:
    """Reads bodies without the background loop."""

    _asyncio: Any

    @overload
    def decode(self, message: MessageExt, kind: type[T]) -> T: ...
    @overload
    def decode(self, message: MessageExt, kind: Any = ...) -> Any: ...
    def decode(self, message: MessageExt, kind: Any = Any) -> Any:
        """Return the body of a message as a value; see rmq_client.PullConsumer.decode."""
        return self._asyncio.decode(message, kind)


class PullConsumer(_BodyDecoder, _BlockingObject[_pull.PullConsumer]):
    """Reads queues at the application's own pace; see rmq_client.PullConsumer."""

    @_constructs(_pull.PullConsumer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = _on_loop(_pull.PullConsumer.add_hook)
    queues = _blocking(_pull.PullConsumer.queues)
    assign = _blocking(_pull.PullConsumer.assign)
    subscribe = _blocking(_pull.PullConsumer.subscribe)
    unsubscribe = _blocking(_pull.PullConsumer.unsubscribe)
    listen_to_queues = _blocking(_pull.PullConsumer.listen_to_queues)
    assigned_queues = _on_loop(_pull.PullConsumer.assigned_queues)
    pause = _on_loop(_pull.PullConsumer.pause)
    resume = _on_loop(_pull.PullConsumer.resume)
    seek = _blocking(_pull.PullConsumer.seek)
    seek_to_beginning = _blocking(_pull.PullConsumer.seek_to_beginning)
    seek_to_end = _blocking(_pull.PullConsumer.seek_to_end)
    seek_to_time = _blocking(_pull.PullConsumer.seek_to_time)
    offset_for_time = _blocking(_pull.PullConsumer.offset_for_time)
    position = _blocking(_pull.PullConsumer.position)
    beginning_offsets = _blocking(_pull.PullConsumer.beginning_offsets)
    end_offsets = _blocking(_pull.PullConsumer.end_offsets)
    committed_offsets = _blocking(_pull.PullConsumer.committed_offsets)
    committed = _blocking(_pull.PullConsumer.committed)
    lag = _blocking(_pull.PullConsumer.lag)
    commit = _blocking(_pull.PullConsumer.commit)
    poll = _blocking(_pull.PullConsumer.poll)
    pull = _blocking(_pull.PullConsumer.pull)
    dead_letter = _blocking(_pull.PullConsumer.dead_letter)

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield message by message until the consumer is stopped; commits include the yielded ones only.

        Messages are handed over by the background loop many at a time. Raises as `poll`.
        """
        yield from _each_message(self._asyncio)


class SimpleConsumer(_BodyDecoder, _BlockingObject[_simple.SimpleConsumer]):
    """Receives messages and acknowledges each one; see rmq_client.SimpleConsumer."""

    @_constructs(_simple.SimpleConsumer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = _on_loop(_simple.SimpleConsumer.add_hook)
    subscribe = _blocking(_simple.SimpleConsumer.subscribe)
    unsubscribe = _blocking(_simple.SimpleConsumer.unsubscribe)
    receive = _blocking(_simple.SimpleConsumer.receive)
    ack = _blocking(_simple.SimpleConsumer.ack)
    dead_letter = _blocking(_simple.SimpleConsumer.dead_letter)
    change_invisible_time = _blocking(_simple.SimpleConsumer.change_invisible_time)
    beginning_offsets = _blocking(_simple.SimpleConsumer.beginning_offsets)
    end_offsets = _blocking(_simple.SimpleConsumer.end_offsets)
    committed_offsets = _blocking(_simple.SimpleConsumer.committed_offsets)
    committed = _blocking(_simple.SimpleConsumer.committed)
    lag = _blocking(_simple.SimpleConsumer.lag)

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield message by message until the consumer is stopped.

        Messages are handed over by the background loop many at a time. One that waited for long is made
        invisible again before it is yielded. Raises as `receive`.
        """
        yield from _each_message(self._asyncio)


class Deduplicator:
    """Skips messages that were processed before; see rmq_client.Deduplicator.

    The store runs on the background loop, also for listeners that are functions.
    """

    _asyncio: _deduplicator.Deduplicator

    @_constructs(_deduplicator.Deduplicator)
    def __init__(self) -> None:
        """Take the same arguments."""

    @property
    def store(self) -> DeduplicationStore:
        """The store of the keys."""
        return self._asyncio.store

    def key_of(self, message: MessageExt) -> str:
        """Return the key of a message. Raises UsageError for a function that returns no text."""
        return self._asyncio.key_of(message)

    def listener(
        self, listener: Listener, *, none_means: ConsumeResult = ConsumeResult.SUCCESS
    ) -> _deduplicator.DeduplicatedListener:
        """Return a listener that gets only new messages; see rmq_client.Deduplicator.listener."""
        kind = inspect_listener(listener, none_means=none_means)
        return _deduplicator.deduplicated(self._asyncio, kind, _background.run)

    def once(
        self, message: MessageExt, *, wait_seconds: Seconds = 0.0
    ) -> AbstractContextManager[ClaimResult]:
        """Claim a message for the block of `with`, and confirm it at its end, as rmq_client.Deduplicator."""
        return _blocking_context(self._asyncio.once(message, wait_seconds=wait_seconds))


@contextmanager
def _blocking_context(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    value = _background.run(_entered(context))
    try:
        yield value
    except BaseException as error:
        if not _background.run(_left(context, error)):
            raise
    else:
        _background.run(_left(context, None))


async def _entered(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _left(context: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    kind = None if error is None else type(error)
    return bool(await context.__aexit__(kind, error, None if error is None else error.__traceback__))


class RawPuller(_BlockingObject[_raw_pulls.RawPuller]):
    """Pulls queues as undecoded bytes; see rmq_client.RawPuller."""

    @_constructs(_raw_pulls.RawPuller)
    def __init__(self) -> None:
        """Take the same arguments."""

    pull = _blocking(_raw_pulls.RawPuller.pull)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop of the connections, in the background. It may use `pulls`."""
        return self._asyncio.submit(coroutine)

    @property
    def pulls(self) -> _raw_pulls.RawPuller:
        """The asyncio object, for coroutines of `submit`."""
        return self._asyncio


class Admin(_BlockingObject[_admin.Admin]):
    """Administration of a cluster; see rmq_client.Admin."""

    @_constructs(_admin.Admin)
    def __init__(self) -> None:
        """Take the same arguments."""

    # topics
    create_topic = _blocking(_admin.Admin.create_topic)
    update_topic = _blocking(_admin.Admin.update_topic)
    delete_topic = _blocking(_admin.Admin.delete_topic)
    topics = _blocking(_admin.Admin.topics)
    topic_settings = _blocking(_admin.Admin.topic_settings)
    topic_route = _blocking(_admin.Admin.topic_route)
    known_route = _blocking(_admin.Admin.known_route)
    topic_stats = _blocking(_admin.Admin.topic_stats)
    topic_groups = _blocking(_admin.Admin.topic_groups)

    # static topics
    static_topic = _blocking(_admin.Admin.static_topic)
    create_static_topic = _blocking(_admin.Admin.create_static_topic)
    move_static_topic = _blocking(_admin.Admin.move_static_topic)
    repair_static_topic = _blocking(_admin.Admin.repair_static_topic)

    # groups
    create_group = _blocking(_admin.Admin.create_group)
    update_group = _blocking(_admin.Admin.update_group)
    delete_group = _blocking(_admin.Admin.delete_group)
    groups = _blocking(_admin.Admin.groups)
    group_settings = _blocking(_admin.Admin.group_settings)
    group_topics = _blocking(_admin.Admin.group_topics)
    set_consume_mode = _blocking(_admin.Admin.set_consume_mode)
    set_group_readable = _blocking(_admin.Admin.set_group_readable)

    # connected clients
    consumer_ids = _blocking(_admin.Admin.consumer_ids)
    group_connections = _blocking(_admin.Admin.group_connections)
    producer_connections = _blocking(_admin.Admin.producer_connections)
    consumer_state = _blocking(_admin.Admin.consumer_state)
    deliver_message = _blocking(_admin.Admin.deliver_message)

    # progress and offsets
    lag = _blocking(_admin.Admin.lag)
    lags = _blocking(_admin.Admin.lags)
    consume_time_span = _blocking(_admin.Admin.consume_time_span)
    max_offset = _blocking(_admin.Admin.max_offset)
    min_offset = _blocking(_admin.Admin.min_offset)
    search_offset = _blocking(_admin.Admin.search_offset)
    earliest_time = _blocking(_admin.Admin.earliest_time)
    committed_offset = _blocking(_admin.Admin.committed_offset)
    commit_offset = _blocking(_admin.Admin.commit_offset)
    reset_offsets = _blocking(_admin.Admin.reset_offsets)
    reset_queue_offset = _blocking(_admin.Admin.reset_queue_offset)
    skip_backlog = _blocking(_admin.Admin.skip_backlog)
    clone_offsets = _blocking(_admin.Admin.clone_offsets)

    # messages
    query_messages = _blocking(_admin.Admin.query_messages)
    view_message = _blocking(_admin.Admin.view_message)
    read_queue = _blocking(_admin.Admin.read_queue)
    messages_between = _blocking(_admin.Admin.messages_between)
    queue_entries = _blocking(_admin.Admin.queue_entries)
    track_message = _blocking(_admin.Admin.track_message)
    message_trace = _blocking(_admin.Admin.message_trace)
    resume_transaction_check = _blocking(_admin.Admin.resume_transaction_check)

    # dead letters
    dead_letter_counts = _blocking(_admin.Admin.dead_letter_counts)
    dead_letters = _blocking(_admin.Admin.dead_letters)
    resend_dead_letter = _blocking(_admin.Admin.resend_dead_letter)

    # brokers and name servers
    cluster_info = _blocking(_admin.Admin.cluster_info)
    broker_settings = _blocking(_admin.Admin.broker_settings)
    update_broker_settings = _blocking(_admin.Admin.update_broker_settings)
    broker_status = _blocking(_admin.Admin.broker_status)
    broker_figures = _blocking(_admin.Admin.broker_figures)
    broker_runtime = _blocking(_admin.Admin.broker_runtime)
    replication_status = _blocking(_admin.Admin.replication_status)
    controller_state = _blocking(_admin.Admin.controller_state)
    in_sync_sets = _blocking(_admin.Admin.in_sync_sets)
    broker_epochs = _blocking(_admin.Admin.broker_epochs)
    cold_reads = _blocking(_admin.Admin.cold_reads)
    set_cold_read_threshold = _blocking(_admin.Admin.set_cold_read_threshold)
    remove_cold_read_threshold = _blocking(_admin.Admin.remove_cold_read_threshold)
    set_read_ahead = _blocking(_admin.Admin.set_read_ahead)
    clean_brokers = _blocking(_admin.Admin.clean_brokers)
    name_server_settings = _blocking(_admin.Admin.name_server_settings)
    update_name_server_settings = _blocking(_admin.Admin.update_name_server_settings)
    key_values = _blocking(_admin.Admin.key_values)
    put_key_value = _blocking(_admin.Admin.put_key_value)
    delete_key_value = _blocking(_admin.Admin.delete_key_value)
    wipe_write_permission = _blocking(_admin.Admin.wipe_write_permission)
    add_write_permission = _blocking(_admin.Admin.add_write_permission)

    # access control
    create_user = _blocking(_admin.Admin.create_user)
    update_user = _blocking(_admin.Admin.update_user)
    delete_user = _blocking(_admin.Admin.delete_user)
    copy_users = _blocking(_admin.Admin.copy_users)
    user = _blocking(_admin.Admin.user)
    users = _blocking(_admin.Admin.users)
    create_rules = _blocking(_admin.Admin.create_rules)
    update_rules = _blocking(_admin.Admin.update_rules)
    delete_rules = _blocking(_admin.Admin.delete_rules)
    copy_rules = _blocking(_admin.Admin.copy_rules)
    user_rules = _blocking(_admin.Admin.user_rules)
    rules = _blocking(_admin.Admin.rules)

"""The blocking push, pull and simple consumers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeVar, overload

from rmq_remoting.message import MessageExt

from ..consumer.pull import pull_consumer as _pull
from ..consumer.push import push_consumer as _push
from ..consumer.simple import simple_consumer as _simple
from ..errors import NotRunning
from .background import run
from .wrapping import BlockingObject, blocking, constructs, on_loop

T = TypeVar("T")


class PushConsumer(BlockingObject[_push.PushConsumer]):
    """Delivers messages to a listener, which should be a function; see rmq_client.PushConsumer."""

    @constructs(_push.PushConsumer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = on_loop(_push.PushConsumer.add_hook)
    wait_ready = blocking(_push.PushConsumer.wait_ready)
    wait_stopped = blocking(_push.PushConsumer.wait_stopped)
    subscribe = blocking(_push.PushConsumer.subscribe)
    unsubscribe = blocking(_push.PushConsumer.unsubscribe)
    commit = blocking(_push.PushConsumer.commit)
    suspend = on_loop(_push.PushConsumer.suspend)
    resume = on_loop(_push.PushConsumer.resume)
    assigned_queues = blocking(_push.PushConsumer.assigned_queues)
    statistics = blocking(_push.PushConsumer.statistics)
    beginning_offsets = blocking(_push.PushConsumer.beginning_offsets)
    end_offsets = blocking(_push.PushConsumer.end_offsets)
    committed_offsets = blocking(_push.PushConsumer.committed_offsets)
    committed = blocking(_push.PushConsumer.committed)
    lag = blocking(_push.PushConsumer.lag)


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
            run(ahead.fill())
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


class PullConsumer(_BodyDecoder, BlockingObject[_pull.PullConsumer]):
    """Reads queues at the application's own pace; see rmq_client.PullConsumer."""

    @constructs(_pull.PullConsumer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = on_loop(_pull.PullConsumer.add_hook)
    queues = blocking(_pull.PullConsumer.queues)
    assign = blocking(_pull.PullConsumer.assign)
    subscribe = blocking(_pull.PullConsumer.subscribe)
    unsubscribe = blocking(_pull.PullConsumer.unsubscribe)
    listen_to_queues = blocking(_pull.PullConsumer.listen_to_queues)
    assigned_queues = on_loop(_pull.PullConsumer.assigned_queues)
    pause = on_loop(_pull.PullConsumer.pause)
    resume = on_loop(_pull.PullConsumer.resume)
    seek = blocking(_pull.PullConsumer.seek)
    seek_to_beginning = blocking(_pull.PullConsumer.seek_to_beginning)
    seek_to_end = blocking(_pull.PullConsumer.seek_to_end)
    seek_to_time = blocking(_pull.PullConsumer.seek_to_time)
    offset_for_time = blocking(_pull.PullConsumer.offset_for_time)
    position = blocking(_pull.PullConsumer.position)
    beginning_offsets = blocking(_pull.PullConsumer.beginning_offsets)
    end_offsets = blocking(_pull.PullConsumer.end_offsets)
    committed_offsets = blocking(_pull.PullConsumer.committed_offsets)
    committed = blocking(_pull.PullConsumer.committed)
    lag = blocking(_pull.PullConsumer.lag)
    commit = blocking(_pull.PullConsumer.commit)
    poll = blocking(_pull.PullConsumer.poll)
    pull = blocking(_pull.PullConsumer.pull)
    dead_letter = blocking(_pull.PullConsumer.dead_letter)

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield message by message until the consumer is stopped; commits include the yielded ones only.

        Messages are handed over by the background loop many at a time. Raises as `poll`.
        """
        yield from _each_message(self._asyncio)


class SimpleConsumer(_BodyDecoder, BlockingObject[_simple.SimpleConsumer]):
    """Receives messages and acknowledges each one; see rmq_client.SimpleConsumer."""

    @constructs(_simple.SimpleConsumer)
    def __init__(self) -> None:
        """Take the same arguments."""

    add_hook = on_loop(_simple.SimpleConsumer.add_hook)
    subscribe = blocking(_simple.SimpleConsumer.subscribe)
    unsubscribe = blocking(_simple.SimpleConsumer.unsubscribe)
    receive = blocking(_simple.SimpleConsumer.receive)
    ack = blocking(_simple.SimpleConsumer.ack)
    dead_letter = blocking(_simple.SimpleConsumer.dead_letter)
    change_invisible_time = blocking(_simple.SimpleConsumer.change_invisible_time)
    beginning_offsets = blocking(_simple.SimpleConsumer.beginning_offsets)
    end_offsets = blocking(_simple.SimpleConsumer.end_offsets)
    committed_offsets = blocking(_simple.SimpleConsumer.committed_offsets)
    committed = blocking(_simple.SimpleConsumer.committed)
    lag = blocking(_simple.SimpleConsumer.lag)

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield message by message until the consumer is stopped.

        Messages are handed over by the background loop many at a time. One that waited for long is made
        invisible again before it is yielded. Raises as `receive`.
        """
        yield from _each_message(self._asyncio)

"""Pulls of explicit queues and offsets that return undecoded bytes, for readers that decode themselves.

A puller names a consumer group, but is no member of it. It sends no heartbeats, takes no part in rebalancing,
and moves no offsets of the group. Each pull carries its own filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rmq_remoting.bodies.constants import MASTER_BROKER_ID, SUBSCRIBE_ALL, TAG_EXPRESSION
from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand, Serialization, next_opaque
from rmq_remoting.errors import RequestError
from rmq_remoting.ext_fields import encode_binary
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.sys_flags import PullSysFlag

from .checks import (
    Seconds,
    check_flag,
    check_instance,
    check_int,
    check_offset,
    check_queue,
    check_seconds,
    check_text,
    refuse,
    set_fields,
    short_repr,
)
from .errors import (
    BrokerError,
    ClientError,
    NotRunning,
    UsageError,
    broker_error,
    readable,
    request_failure,
)
from .lifetime import Lifetime, not_running
from .namespaces import Namespace
from .network.broker_api import Requester
from .network.instance import ClientInstance
from .network.routing import TopicRoute, may_be_of_old_route
from .pull_status import PULL_STATUSES, PullStatus
from .settings import ClientSettings, check_namesrv, checked_settings
from .tasks import uninterrupted

T = TypeVar("T")

_DEFAULT_SETTINGS: Final = ClientSettings()
_CODE: Final = RequestCode.PULL_MESSAGE
# One entry per queue and PullWish that are read: a reader of 1,024 queues keeps all of them.
_MAX_CACHED_HEADERS: Final = 1024
_MAX_CACHED_HEADER_BYTES: Final = 4 * 1024 * 1024
# A number in a request has 31 bits.
_MAX_INT: Final = 2**31 - 1


@dataclass(slots=True)
class RawPull:
    """Result of a pull. `body` holds stored messages one after the other; it is empty unless FOUND.

    `next_offset` is the offset of the next pull. `offset_delta` is to be added to the queue offsets in the
    body; it is 0 except for static topics. `from_master`: the master answered, not a replica.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    offset_delta: int = 0
    from_master: bool = True


@dataclass(frozen=True, slots=True, init=False, repr=False)
class PullWish:
    """Limits of a pull in messages and bytes, and its filter: an expression of tags, or of another type.

    Brokers have limits of their own, and return at least one message, however large. `hold_seconds`: how
    long the broker holds a pull that finds nothing; 0: it answers at once. `from_master`: ask the master,
    even if a replica was suggested.
    """

    max_messages: int
    max_bytes: int
    expression: str
    expression_type: str
    hold_seconds: float
    from_master: bool

    __repr__ = short_repr

    def __init__(
        self,
        max_messages: int = 32,
        max_bytes: int = 256 * 1024,
        expression: str = SUBSCRIBE_ALL,
        expression_type: str = TAG_EXPRESSION,
        hold_seconds: Seconds = 0.0,
        from_master: bool = False,
    ) -> None:
        """Raises InvalidArgumentError."""
        set_fields(
            self,
            max_messages=check_int("max_messages", max_messages, least=1, most=_MAX_INT),
            max_bytes=check_int("max_bytes", max_bytes, least=1, most=_MAX_INT),
            expression=check_text("expression", expression),
            expression_type=check_text("expression_type", expression_type),
            hold_seconds=check_seconds("hold_seconds", hold_seconds),
            from_master=check_flag("from_master", from_master),
        )


_DEFAULT_WISH: Final = PullWish()


class RawPuller(Lifetime):
    """Pulls queues as bytes, with any number of pulls side by side.

    ::

        async with RawPuller("127.0.0.1:9876", group="reader") as puller:
            answer = await puller.pull(MessageQueue("orders", "broker-a", 0), 0)
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        settings: ClientSettings = _DEFAULT_SETTINGS,
        timeout_seconds: Seconds = 15.0,
    ) -> None:
        """Prepare a puller. Raises InvalidArgumentError.

        `timeout_seconds`: wait for an answer, besides the time that the broker holds the pull.
        """
        self._namesrv = check_namesrv(namesrv)
        self._namespace = Namespace(checked_settings(settings).namespace)
        self._group = self._namespace.checked_group(group)
        self._settings = settings
        self._timeout_seconds = check_seconds("timeout_seconds", timeout_seconds, above=0)
        self._instance: ClientInstance | None = None
        self._pulls: _PullRequests

    async def start(self) -> None:
        """Connect. Raises UsageError."""
        if self._instance is not None:
            raise UsageError("this RawPuller has been started already")
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        self._pulls = _PullRequests(instance.connections, self._group, self._settings, self._timeout_seconds)
        self._instance = instance

    async def stop(self) -> None:
        """Release the connections. Pulls in flight may fail."""
        instance, self._instance = self._instance, None
        if instance is not None and not instance.is_forked:
            await uninterrupted(instance.release())

    async def pull(self, queue: MessageQueue, offset: int, wish: PullWish = _DEFAULT_WISH) -> RawPull:
        """Pull from `offset`, on any loop. Raises BrokerError, UnreachableError, RouteError.

        A pull that failed with a `retryable` error, or without an answer, may be repeated.
        """
        check_queue("queue", queue)
        check_offset("offset", offset)
        check_instance("wish", wish, PullWish, "pass PullWish(...)")
        instance = self._running()
        queue = self._namespace.wrap_queue(queue)
        # Many small pulls are cheapest on the loop of the connections: see `submit`.
        if asyncio.get_running_loop() is instance.loop:
            return await self._pull(instance, queue, offset, wish)
        return await instance.run(self._pull(instance, queue, offset, wish))

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop of the connections, from any thread.

        It must not block or compute for long.

        Cancelling the future cancels the coroutine. Raises NotRunning.
        """
        if not asyncio.iscoroutine(coroutine):
            raise refuse("coroutine", coroutine, "must be a coroutine: call an `async def` function")
        try:
            return self._running().thread.submit(coroutine)
        except NotRunning:
            coroutine.close()
            raise

    async def _pull(
        self, instance: ClientInstance, queue: MessageQueue, offset: int, wish: PullWish
    ) -> RawPull:
        routes = instance.routes
        try:
            route = routes.existing.get(queue.topic) or await routes.route(queue.topic)
            try:
                return await self._pulls.pull(route, queue, offset, wish)
            except BrokerError as error:
                if not may_be_of_old_route(error):
                    raise
            # Another broker leads the logical queue now.
            return await self._pulls.pull(await routes.refresh(queue.topic), queue, offset, wish)
        except ClientError as error:
            if not isinstance(error, UsageError):
                routes.request_failed(queue.topic)
            raise

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise not_running("this RawPuller")
        self._check_process()
        return self._instance


class _PullRequests:
    """Requests and answers of one puller, with the broker to ask for each queue.

    Belongs to the network loop.
    """

    def __init__(
        self, requester: Requester, group: str, settings: ClientSettings, timeout_seconds: float
    ) -> None:
        self._requester = requester
        self._group = group
        self._settings = settings
        self._timeout_seconds = timeout_seconds
        # Only of queues that a broker other than the master should serve.
        self._suggested: dict[MessageQueue, int] = {}
        # Encoded header fields of a pull, without its offset.
        self._constant_fields: BoundedCache[tuple[MessageQueue, PullWish], bytes] = BoundedCache(
            "raw_pull_headers",
            max_entries=_MAX_CACHED_HEADERS,
            max_bytes=_MAX_CACHED_HEADER_BYTES,
            size_of=lambda _, fields: ENTRY_OVERHEAD_BYTES + len(fields),
        )

    async def pull(self, route: TopicRoute, queue: MessageQueue, offset: int, wish: PullWish) -> RawPull:
        """Pull once. Raises BrokerError, UnreachableError."""
        broker_id = MASTER_BROKER_ID if wish.from_master else self._suggested.get(queue, MASTER_BROKER_ID)
        address = route.known_address_of(queue, broker_id)
        request = self._request(route.on_broker(queue), offset, wish)
        try:
            response = await self._requester.request(
                address, request, wish.hold_seconds + self._timeout_seconds
            )
        except RequestError as error:
            self._suggested.pop(queue, None)
            raise request_failure(error, f"pull from {queue}") from error
        status = PULL_STATUSES.get(response.code)
        about = f"pull from {queue} at {offset}"
        if status is None:
            self._suggested.pop(queue, None)
            raise broker_error(response.code, response.remark, address, about)
        with readable(address, about):
            header = PullMessageResponseHeader.decode(response.ext_fields)
        self._follow(queue, header.suggest_which_broker_id)
        return RawPull(
            status,
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            response.body if status is PullStatus.FOUND else b"",
            header.offset_delta or 0,
            from_master=route.is_master(route.broker_of(queue), address),
        )

    def _follow(self, queue: MessageQueue, broker_id: int) -> None:
        if broker_id != MASTER_BROKER_ID:
            self._suggested[queue] = broker_id
        else:
            self._suggested.pop(queue, None)

    def _request(self, queue: MessageQueue, offset: int, wish: PullWish) -> RemotingCommand:
        if self._settings.serialization is not Serialization.BINARY:
            fields = self._header(queue, offset, wish).encode()
            return RemotingCommand.request(_CODE, fields, serialization=self._settings.serialization)
        # Pulls of one queue differ only in the offset: encoding all fields took a fifth of the time of a
        # pull.
        constant = self._constant_fields.get((queue, wish))
        if constant is None:
            fields = self._header(queue, offset, wish).encode()
            del fields["queueOffset"]
            constant = encode_binary(fields) + b"\0\x0bqueueOffset"
            self._constant_fields.put((queue, wish), constant)
        text = b"%d" % offset
        raw_ext = b"%b\0\0\0%c%b" % (constant, len(text), text)
        return RemotingCommand(
            int(_CODE), 0, next_opaque(), raw_ext=raw_ext, serialization=Serialization.BINARY
        )

    def _header(self, queue: MessageQueue, offset: int, wish: PullWish) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=wish.max_messages,
            sys_flag=PullSysFlag.build(suspend=wish.hold_seconds > 0, subscription=True),
            commit_offset=0,
            suspend_timeout_ms=int(wish.hold_seconds * 1000),
            subscription=wish.expression,
            sub_version=0,
            expression_type=wish.expression_type,
            max_msg_bytes=wish.max_bytes,
            broker_name=queue.broker_name,
        )

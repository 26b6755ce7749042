"""Pull requests of push and pull consumers, and their results."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization, next_opaque
from rmq_remoting.errors import HeaderError, RequestError
from rmq_remoting.ext_fields import encode_binary
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_errors import DecompressionBudgetError
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.sys_flags import PullSysFlag

from ...checks import Seconds, check_int, check_seconds, set_fields, short_repr
from ...errors import BrokerError, broker_error, request_failure
from ...network.broker_api import Requester
from ...network.routing import TopicRoute
from ...pull_status import PULL_STATUSES, PullStatus
from ...response_decoding import ResponseDecoding
from ...settings import ClientSettings
from ..subscription import Subscription

log = logging.getLogger(__name__)

# Timeout of a pull beyond the time that the broker holds it (Apache RocketMQ 5.3.3: 15 s and 30 s).
_ANSWER_MARGIN_SECONDS: Final = 15.0
# A number in a request has 31 bits.
_MAX_INT: Final = 2**31 - 1
_CODE: Final = RequestCode.PULL_MESSAGE

# What the fields of a pull depend on besides queue and offsets: the subscription, whether the pull commits,
# and whether it carries the subscription.
_Kind = tuple[Subscription, bool, bool]


@dataclass(slots=True)
class PullResult:
    """Result of a pull. `next_offset` is the offset of the next pull, also without matching messages."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]


@dataclass(frozen=True, slots=True, init=False, repr=False)
class PullSettings:
    """Bounds of one pull in messages and bytes, and how long the broker holds a pull that finds nothing.

    Without a `hold_seconds` of at least 0.001 the broker would be asked in a busy loop.
    """

    max_messages: int
    max_bytes: int
    hold_seconds: float

    __repr__ = short_repr

    def __init__(
        self, max_messages: int = 32, max_bytes: int = 256 * 1024, hold_seconds: Seconds = 15.0
    ) -> None:
        """Raises InvalidArgumentError."""
        set_fields(
            self,
            max_messages=check_int("max_messages", max_messages, least=1, most=_MAX_INT),
            max_bytes=check_int("max_bytes", max_bytes, least=1, most=_MAX_INT),
            hold_seconds=check_seconds("hold_seconds", hold_seconds, least=0.001),
        )


class PullClient:
    """Pulls from the brokers of one group's queues, and follows their suggestions which broker to ask
    next.
    """

    def __init__(
        self, requester: Requester, group: str, pull_settings: PullSettings, settings: ClientSettings
    ) -> None:
        self._requester = requester
        self._group = group
        self._pull_settings = pull_settings
        self._settings = settings
        self._advised_broker_ids: dict[MessageQueue, int] = {}
        # The fields of the last pull of each queue around the two offsets, and what they depend on.
        self._encoded: dict[MessageQueue, tuple[_Kind, bytes, bytes, bytes]] = {}

    async def pull(
        self,
        route: TopicRoute,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        *,
        commit_offset: int | None = None,
        send_subscription: bool = False,
    ) -> PullResult:
        """Pull from `offset`.

        `commit_offset` is committed with the pull. `send_subscription`: the broker filters by this
        subscription, not by that of heartbeats. Raises BrokerError, UnreachableError.
        """
        broker_id = self._advised_broker_ids.get(queue, MASTER_BROKER_ID)
        address = route.known_address_of(queue, broker_id)
        if broker_id != MASTER_BROKER_ID:
            commit_offset = None  # slaves keep no offsets
        request = self._request(
            route.on_broker(queue), offset, subscription, commit_offset, send_subscription
        )
        try:
            response = await self._requester.request(
                address, request, self._pull_settings.hold_seconds + _ANSWER_MARGIN_SECONDS
            )
        except RequestError as error:
            raise request_failure(error, f"pull from {queue}") from error
        header, result = self._read_header(response, address, queue, offset)
        if result.status is PullStatus.FOUND:
            decoding = ResponseDecoding(response.body, self._settings.max_unpacked_body_bytes)
            if decoding.needs_thread:
                await decoding.finish_in_thread()
            self._read_messages(decoding, address, queue, header, result)
            result.messages = subscription.select(result.messages)
        return result

    def _request(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        commit_offset: int | None,
        send_subscription: bool,
    ) -> RemotingCommand:
        commits = commit_offset is not None and commit_offset > 0
        serialization = self._settings.serialization
        if serialization is not Serialization.BINARY:
            header = self._header(queue, offset, subscription, commit_offset or 0, commits, send_subscription)
            return RemotingCommand.request(_CODE, header.encode(), serialization=serialization)
        # Pulls of one queue differ only in their offsets: encoding all fields took a tenth of the time that a
        # push consumer spends on a pull and its messages.
        kind = (subscription, commits, send_subscription)
        encoded = self._encoded.get(queue)
        if encoded is None or encoded[0] != kind:
            fields = self._header(queue, 0, subscription, 0, commits, send_subscription).encode()
            encoded = self._encoded[queue] = (kind, *_around_offsets(fields))
        _, before, between, after = encoded
        at, consumed = b"%d" % offset, b"%d" % (commit_offset or 0)
        raw_ext = b"%b\0\0\0%c%b%b\0\0\0%c%b%b" % (
            *(before, len(at), at),
            *(between, len(consumed), consumed),
            after,
        )
        return RemotingCommand(int(_CODE), 0, next_opaque(), raw_ext=raw_ext, serialization=serialization)

    def _header(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        commit_offset: int,
        commits: bool,
        send_subscription: bool,
    ) -> PullMessageRequestHeader:
        pull_settings = self._pull_settings
        return PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=pull_settings.max_messages,
            sys_flag=PullSysFlag.build(commit_offset=commits, suspend=True, subscription=send_subscription),
            commit_offset=commit_offset,
            suspend_timeout_ms=int(pull_settings.hold_seconds * 1000),
            subscription=subscription.data.sub_string if send_subscription else None,
            sub_version=subscription.data.sub_version,
            expression_type=subscription.data.expression_type,
            max_msg_bytes=pull_settings.max_bytes,
            broker_name=queue.broker_name,
        )

    def _read_header(
        self, response: RemotingCommand, address: str, queue: MessageQueue, offset: int
    ) -> tuple[PullMessageResponseHeader, PullResult]:
        status = PULL_STATUSES.get(response.code)
        if status is None:
            raise broker_error(response.code, response.remark, address, f"pull from {queue} at {offset}")
        try:
            header = PullMessageResponseHeader.decode(response.ext_fields)
        except HeaderError as error:
            raise BrokerError(response.code, str(error), address, f"pull from {queue}") from error
        self._advised_broker_ids[queue] = header.suggest_which_broker_id
        return header, PullResult(status, header.next_begin_offset, header.min_offset, header.max_offset, [])

    def _read_messages(
        self,
        decoding: ResponseDecoding,
        address: str,
        queue: MessageQueue,
        header: PullMessageResponseHeader,
        result: PullResult,
    ) -> None:
        """Put the decoded messages into the result.

        The next pull begins at the first message that is not decoded. Raises BrokerError.
        """
        check_decoding(decoding, queue, address, f"pull from {queue}")
        if decoding.error is not None:
            result.next_offset = _offset_after(decoding) + (header.offset_delta or 0)
        for message in decoding.messages:
            message.broker_name = queue.broker_name
            if header.offset_delta:
                message.queue_offset += header.offset_delta
            message.queue_id = queue.queue_id
        result.messages = decoding.messages


def _around_offsets(fields: dict[str, str]) -> tuple[bytes, bytes, bytes]:
    """Encode the fields before, between and after the two offsets, with the offsets' names."""
    names = list(fields)
    first, second = names.index("queueOffset"), names.index("commitOffset")

    def encoded(some: list[str]) -> bytes:
        return encode_binary({name: fields[name] for name in some})

    return (
        encoded(names[:first]) + b"\0\x0bqueueOffset",
        encoded(names[first + 1 : second]) + b"\0\x0ccommitOffset",
        encoded(names[second + 1 :]),
    )


def check_decoding(decoding: ResponseDecoding, queue: MessageQueue, address: str, about: str) -> None:
    """Log why messages of a response are missing. Raises BrokerError if its first record is unreadable.

    A message whose body cannot be decompressed is skipped, as by Apache's client. `about` names the request.
    """
    for message, cause in decoding.skipped:
        log.error(
            "message lost, its body cannot be decompressed id=%s offset=%d queue=%s cause=%s",
            message.msg_id,
            message.queue_offset,
            queue,
            cause,
        )
    error = decoding.error
    if error is None:
        return
    if isinstance(error, DecompressionBudgetError):
        log.info(
            "response over the limit of decompressed bodies request=%s messages=%d cause=%s; the broker is "
            "asked again for the rest",
            about,
            len(decoding.messages),
            error,
        )
        return
    if not decoding.messages and not decoding.skipped:
        raise BrokerError(ResponseCode.SUCCESS, f"unreadable messages: {error}", address, about) from error
    log.error("messages not readable request=%s cause=%s; those before them are used", about, error)


def _offset_after(decoding: ResponseDecoding) -> int:
    """Return the queue offset of the first message that is not decoded."""
    undecoded = decoding.undecoded()
    if undecoded:
        return undecoded[0].queue_offset
    read = decoding.messages[-1:] + [message for message, _ in decoding.skipped[-1:]]
    return 1 + max(message.queue_offset for message in read)

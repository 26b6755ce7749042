"""Pull requests of push and pull consumers, and their results."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.compression import CompressionType, decompress
from rmq_remoting.errors import HeaderError, RequestError
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages, decode_until_damage
from rmq_remoting.message_errors import DecompressionError
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.sys_flags import MessageSysFlag, PullSysFlag

from ...errors import BrokerError, broker_error, request_failure
from ...network.broker_api import Requester
from ...network.routing import TopicRoute
from ...pull_status import PULL_STATUSES, PullStatus
from ...settings import ClientSettings
from ..subscription import Subscription

log = logging.getLogger("rmq.client.pull")

# Timeout of a pull beyond the time that the broker holds it (Apache RocketMQ 5.3.3: 15 s and 30 s).
_ANSWER_MARGIN_SECONDS: Final = 15.0


@dataclass(slots=True)
class PullResult:
    """Result of a pull. `next_offset` is the offset of the next pull, also without matching messages."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[MessageExt]


@dataclass(frozen=True, slots=True)
class PullSettings:
    """Bounds of one pull in messages and bytes, and how long the broker holds a pull that finds nothing."""

    batch_size: int = 32
    max_bytes: int = 256 * 1024
    hold_seconds: float = 15.0


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
        address = route.known_address(queue.broker_name, queue, broker_id)
        if broker_id != MASTER_BROKER_ID:
            commit_offset = None  # slaves keep no offsets
        request = self._request(queue, offset, subscription, commit_offset, send_subscription)
        try:
            response = await self._requester.request(
                address, request, self._pull_settings.hold_seconds + _ANSWER_MARGIN_SECONDS
            )
        except RequestError as error:
            raise request_failure(error, f"pull from {queue}") from error
        return self._read(response, address, queue, offset, subscription)

    def _request(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        commit_offset: int | None,
        send_subscription: bool,
    ) -> RemotingCommand:
        pull_settings = self._pull_settings
        commits = commit_offset is not None and commit_offset > 0
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=pull_settings.batch_size,
            sys_flag=PullSysFlag.build(commit_offset=commits, suspend=True, subscription=send_subscription),
            commit_offset=commit_offset or 0,
            suspend_timeout_ms=int(pull_settings.hold_seconds * 1000),
            subscription=subscription.data.sub_string if send_subscription else None,
            sub_version=subscription.data.sub_version,
            expression_type=subscription.data.expression_type,
            max_msg_bytes=pull_settings.max_bytes,
            broker_name=queue.broker_name,
        )
        return RemotingCommand.request(
            RequestCode.PULL_MESSAGE, header.encode(), serialization=self._settings.serialization
        )

    def _read(
        self,
        response: RemotingCommand,
        address: str,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
    ) -> PullResult:
        status = PULL_STATUSES.get(response.code)
        if status is None:
            raise broker_error(response.code, response.remark, address, f"pull from {queue} at {offset}")
        try:
            header = PullMessageResponseHeader.decode(response.ext_fields)
        except HeaderError as error:
            raise BrokerError(response.code, str(error), address, f"pull from {queue}") from error
        self._advised_broker_ids[queue] = header.suggest_which_broker_id
        result = PullResult(status, header.next_begin_offset, header.min_offset, header.max_offset, [])
        if status is PullStatus.FOUND:
            messages = self._messages(response.body, address, queue, result)
            for message in messages:
                message.broker_name = queue.broker_name
                if header.offset_delta:
                    message.queue_offset += header.offset_delta
                message.queue_id = queue.queue_id
            result.messages = subscription.select(messages)
        return result

    def _messages(
        self, body: bytes, address: str, queue: MessageQueue, result: PullResult
    ) -> list[MessageExt]:
        """Decode the messages of a body.

        A message whose body cannot be decompressed is skipped, as Apache's client does. At a damaged record,
        the messages before it are used, and the next pull begins there.
        """
        limit = self._settings.max_unpacked_body_bytes
        messages, is_complete = decode_answer(body, queue, limit, address)
        if not is_complete:
            result.next_offset = messages[-1].queue_offset + 1
        return messages


def decode_answer(
    body: bytes, queue: MessageQueue, limit: int, address: str, about: str | None = None
) -> tuple[list[MessageExt], bool]:
    """Return the messages of an answer's body, and whether all of its records could be read.

    A message whose body cannot be decompressed, or only to more than `limit` bytes, is left out. Raises
    BrokerError if the first record is unreadable; otherwise the messages before an unreadable one are
    returned. `about` names the request in the error; None: a pull from the queue.
    """
    messages, damage = decode_until_damage(body, max_body_bytes=limit)
    if damage is None:
        return messages, True
    if isinstance(damage, DecompressionError):
        messages = decode_messages(body, decompress_bodies=False)
        return [message for message in messages if _unpack(message, queue, limit)], True
    about = about or f"pull from {queue}"
    if not messages:
        raise BrokerError(ResponseCode.SUCCESS, f"unreadable messages: {damage}", address, about) from damage
    log.error("messages not readable request=%s cause=%s; those before them are used", about, damage)
    return messages, False


def _unpack(message: MessageExt, queue: MessageQueue, limit: int) -> bool:
    """Decompress a message's body in place, up to `limit` bytes; whether that was possible."""
    if message.sys_flag & MessageSysFlag.COMPRESSED and message.body:
        try:
            message.body = decompress(message.body, CompressionType.of_sys_flag(message.sys_flag), limit)
        except DecompressionError as error:
            log.error(
                "message lost, its body cannot be decompressed id=%s offset=%d queue=%s cause=%s",
                message.msg_id,
                message.queue_offset,
                queue,
                error,
            )
            return False
        message.sys_flag &= ~MessageSysFlag.COMPRESSED
    return True

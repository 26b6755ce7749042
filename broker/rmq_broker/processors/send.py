"""Sending: codes 10, 310 and 320 (Apache RocketMQ 5.3.3, SendMessageProcessor).

Everything that depends on the target alone (is the topic there, may it be written, is the queue id in range)
is decided once per target and table version and kept as a `_Route`; a message then costs its own checks, its
record and its response.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from struct import pack
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Answer, Result
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.send import (
    SendHeaderDecoder,
    SendMessageRequestHeader,
    SendResponseEncoder,
    SendTarget,
)
from rmq_remoting.message_properties import find_property
from rmq_remoting.recall_handle import RecallHandle
from rmq_remoting.sys_flags import MessageSysFlag

from ..delivery.inner_message import InnerMessage
from ..delivery.timer_admission import TimerCongested, TimersOff
from ..store.api import (
    LARGEST_BATCH,
    BatchConsumeQueue,
    ConsumeQueue,
    Durability,
    MessageRejected,
    MessageStore,
    RecordTemplate,
    StoreUnavailable,
    pack_host,
)
from ..topics.names import RETRY_PREFIX
from .born_host import BORN_HOST, born_host_of
from .client_batch import read_batch
from .message_types import check_type, check_types
from .on_disk import answer_when_flushed
from .send_later import LaterSends
from .send_properties import IN_TRANSACTION, PropertiesEditor, batch_in_transaction
from .send_target import TargetChecker

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.configuration import Change

    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics, TopicStatistics

# A batch that is one record, and that clients take apart.
_UNIT_FLAGS: Final = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
_MAX_ROUTES: Final = 65_536
# A target with longer texts than that is decided about anew each time, or it could fill the memory.
_MAX_REMEMBERED_CHARACTERS: Final = 4096
# The settings that what is remembered depends on.
_SETTINGS_THAT_COUNT: Final = ("regionId", "traceOn", "startAcceptSendRequestTimeStamp", "messageTypeCheck")
# Where the message came from and where it is stored is the broker's to say.
_HOST_BITS: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6


@dataclass(slots=True)
class _Route:
    """What is known of a target that messages may be sent to."""

    table_version: int
    queue: ConsumeQueue
    template: RecordTemplate
    template_v6: RecordTemplate
    sys_flag: int
    is_dead_letter: bool  # the target is a retry topic, and the message has come too often
    goes_elsewhere: bool  # as a dead letter, or because the target is part of a transaction
    unit_template: Callable[[int], RecordTemplate] | None  # of batches that are stored as one record
    statistics: TopicStatistics
    wanted_type: str | None  # what all messages must be, where that is to be checked


class SendProcessor:
    """Stores messages and answers where they are."""

    def __init__(
        self,
        settings: BrokerSettings,
        checker: TargetChecker,
        store: MessageStore,
        statistics: BrokerStatistics,
        store_host: tuple[str, int],
        new_unique_key: Callable[[], str],
        later: LaterSends,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._later = later
        self._put_times = statistics.put_times
        self._settings = settings
        self._checker = checker
        self._store = store
        self._statistics = statistics
        self._new_unique_key = new_unique_key
        self._decoder = SendHeaderDecoder()
        self._follow_settings()
        self._store_host = pack_host(*store_host)
        self._msg_id_prefix = self._store_host.hex().upper().encode()
        self._routes: dict[tuple[SendTarget, int], _Route] = {}

    def settings_changed(self, change: Change) -> None:
        """To be called after each change of the settings."""
        if any(key in change for key in _SETTINGS_THAT_COUNT):
            self._follow_settings()
            self._routes.clear()

    def _follow_settings(self) -> None:
        region_id, trace_on = self._settings.region_id, self._settings.trace_on
        self._encoder = SendResponseEncoder(region_id, trace_on)
        self._editor = PropertiesEditor(
            self._settings.broker_cluster_name,
            region_id,
            trace_on,
            self._new_unique_key,
            append_crc=self._settings.append_properties_crc,
        )

    def send(self, connection: Connection, request: RemotingCommand) -> Result:
        """Store one message, or the messages of a batch."""
        try:
            header = self._decoder.decode(request)
            target = header.target
            queue_id = target.queue_id
            if queue_id < 0:
                queue_id = self._any_queue(target, connection)
            route = self._routes.get((target, queue_id))
            if route is None or route.table_version != self._checker.version:
                route = self._resolve(target, queue_id, connection, request.version)
            born_host = connection.attributes.get(BORN_HOST) or born_host_of(connection)
            template = route.template if len(born_host) == 8 else route.template_v6
            if target.batch:
                if route.unit_template is not None:
                    return self._put_unit(request, header, route, born_host)
                return self._put_batch(request, header, route, template, born_host)
            return self._put(request, header, route, template, born_host)
        except CommandError as error:
            return request.response(error.code, error.remark, dict(self._encoder.constant_fields))

    def _put(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        route: _Route,
        template: RecordTemplate,
        born_host: bytes,
    ) -> Result:
        body = request.body
        if not 0 < len(body) <= self._settings.max_message_size:
            raise self._illegal_body(len(body))
        if route.wanted_type is not None:
            check_type(route.wanted_type, header.target.topic, header.properties)
        editor = self._editor
        properties, unique_key, delay_level = editor.stored(header.properties, header.target.reconsume_times)
        if delay_level or route.goes_elsewhere:
            return self._put_for_later(
                request, header, route, born_host, (properties, unique_key, delay_level)
            )
        queue = route.queue
        began = self._clock()
        try:
            physical_offset, queue_offset, size = self._store.put(
                queue,
                template,
                body,
                properties,
                tags_code=editor.tags_code(properties),
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=born_host,
                unique_key=unique_key,
            )
        except (StoreUnavailable, MessageRejected) as error:
            raise self._put_error(error) from error
        statistics = route.statistics
        statistics.put_messages += 1
        statistics.put_bytes += size
        statistics.put_sizes.observe(size)
        self._put_times.add(int((self._clock() - began) * 1000))
        msg_id = b"%b%016X" % (self._msg_id_prefix, physical_offset)
        answer = self._encoder.encode(request, msg_id, queue.queue_id, queue_offset, unique_key)
        if self._store.flushes_each_message and _waits(properties):
            return self._when_flushed(answer)
        return answer

    def _put_for_later(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        route: _Route,
        born_host: bytes,
        edited: tuple[bytes, bytes, int],
    ) -> Result:
        """A message that is stored elsewhere than it was sent to: for later, or as a dead letter.

        The answer tells the queue that it was sent to, and the offset where it is now, as Apache's does.
        """
        properties, unique_key, delay_level = edited
        target, queue = header.target, route.queue
        message = InnerMessage(
            queue.topic,
            queue.queue_id,
            request.body,
            properties,
            target.flag,
            route.sys_flag,
            target.reconsume_times,
            header.born_timestamp_ms,
            born_host,
            self._store_host,
        )
        began = self._clock()
        try:
            if route.is_dead_letter:
                placed = self._later.put_dead_letter(target, message)
            elif delay_level == IN_TRANSACTION or route.goes_elsewhere:
                placed = self._later.put_half(target, message, unique_key)
            else:
                placed = self._later.put_delayed(message, delay_level)
        except (StoreUnavailable, MessageRejected) as error:
            raise self._put_error(error) from error
        self._put_times.add(int((self._clock() - began) * 1000))
        msg_id = b"%b%016X" % (self._msg_id_prefix, placed.physical_offset)
        queue_id = queue.queue_id if target.queue_id < 0 else target.queue_id
        if placed.timer_out_ms is None or target.topic.startswith(RETRY_PREFIX):
            answer = self._encoder.encode(request, msg_id, queue_id, placed.queue_offset, unique_key)
        else:
            fields = self._encoder.fields(msg_id, queue_id, placed.queue_offset, unique_key)
            fields["recallHandle"] = self._recall_handle(target.topic, placed.timer_out_ms, unique_key)
            answer = request.response(ResponseCode.SUCCESS, ext_fields=fields)
        if self._store.flushes_each_message and _waits(properties):
            return self._when_flushed(answer)
        return answer

    def _recall_handle(self, topic: str, out_ms: int, unique_key: bytes) -> str:
        """What the message can be taken back with (SendMessageProcessor.attachRecallHandle)."""
        # The next millisecond is in the slot that the message waits in.
        handle = RecallHandle(topic, self._settings.broker_name, out_ms + 1, unique_key.decode())
        return handle.encode()

    def _put_batch(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        route: _Route,
        template: RecordTemplate,
        born_host: bytes,
    ) -> Result:
        body = request.body
        if not 0 < len(body) <= self._settings.max_message_size:
            raise self._illegal_body(len(body))
        if header.target.topic.startswith("%RETRY%"):
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch cannot be sent to the retry topic {header.target.topic}",
            )
        messages, has_keys = read_batch(body, self._editor.shared(header.properties), self._editor)
        if route.wanted_type is not None:
            check_types(route.wanted_type, header.target.topic, messages)
        unique_key = find_property(header.properties, b"UNIQ_KEY") or b""
        try:
            placed = self._store.put_batch(
                route.queue,
                template,
                messages,
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=born_host,
                unique_key=unique_key,
                has_keys=has_keys,
            )
        except (StoreUnavailable, MessageRejected) as error:
            raise self._put_error(error) from error
        statistics = route.statistics
        statistics.put_messages += len(placed.sizes_bytes)
        statistics.put_bytes += placed.total_bytes
        statistics.put_sizes.observe_all(placed.sizes_bytes)
        msg_id = self._msg_ids(placed.physical_offsets)
        answer = self._encoder.encode(request, msg_id, route.queue.queue_id, placed.queue_offset, unique_key)
        if self._store.flushes_each_message and _waits(header.properties):
            return self._when_flushed(answer)
        return answer

    def _put_unit(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        route: _Route,
        born_host: bytes,
    ) -> Result:
        """A batch for a topic of batches: it is one record, which clients take apart again."""
        body, editor, queue = request.body, self._editor, route.queue
        assert isinstance(queue, BatchConsumeQueue) and route.unit_template is not None
        if not 0 < len(body) <= self._settings.max_message_size:
            raise self._illegal_body(len(body))
        properties = editor.shared(header.properties)
        messages = read_batch(body, properties, editor)[0]
        if route.wanted_type is not None:
            check_types(route.wanted_type, header.target.topic, messages)
        count = len(messages.bodies)
        if count > LARGEST_BATCH:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {count} messages, the limit is {LARGEST_BATCH}",
            )
        unique_key = find_property(header.properties, b"UNIQ_KEY") or b""
        template = route.unit_template(len(born_host))
        try:
            physical_offset, queue_offset, size = self._store.put_unit(
                queue,
                template,
                body,
                properties,
                count,
                tags_code=editor.tags_code(properties),
                born_timestamp_ms=header.born_timestamp_ms,
                born_host=born_host,
                unique_key=unique_key,
            )
        except (StoreUnavailable, MessageRejected) as error:
            raise self._put_error(error) from error
        statistics = route.statistics
        statistics.put_messages += count
        statistics.put_bytes += size
        statistics.put_sizes.observe(size)
        msg_id = b"%b%016X" % (self._msg_id_prefix, physical_offset)
        fields = self._encoder.fields(msg_id, queue.queue_id, queue_offset, unique_key)
        if unique_key:
            fields["batchUniqId"] = unique_key.decode()
        answer = request.response(ResponseCode.SUCCESS, ext_fields=fields)
        if self._store.flushes_each_message and _waits(properties):
            return self._when_flushed(answer)
        return answer

    def _when_flushed(self, answer: bytes | RemotingCommand) -> Result:
        """The answer once the message is on the disk, or, where that takes too long, that it is not yet."""

        def answer_of(durability: Durability) -> Answer:
            if durability is Durability.FLUSHED:
                return answer
            if durability is Durability.TIMED_OUT:
                return self._encoder.with_code(answer, ResponseCode.FLUSH_DISK_TIMEOUT)
            reason = self._store.unavailable_reason
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the message may be lost: {reason}. Send it again, to another broker",
            )

        return answer_when_flushed(self._store, answer_of)

    def _msg_ids(self, offsets: Sequence[int]) -> bytes:
        """The offset message ids of a batch, with commas between; formatting each takes twice as long."""
        prefix = self._msg_id_prefix.decode()
        digits = pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        return f"{prefix}{digits.replace(',', ',' + prefix)}".encode()

    def _any_queue(self, target: SendTarget, connection: Connection) -> int:
        """A negative queue id leaves the choice to the broker. Raises CommandError."""
        topic = self._checker.check(target, connection.peer)
        if topic.write_queue_nums <= 0:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER, f"topic {target.topic} has no queues to write to"
            )
        return random.randrange(topic.write_queue_nums)

    def _resolve(
        self, target: SendTarget, queue_id: int, connection: Connection, client_version: int
    ) -> _Route:
        """Decide about a target. Raises CommandError."""
        topic = self._checker.check(target, connection.peer)
        redelivery, topic_name = self._later.redelivery(target, client_version), target.topic
        if redelivery is not None:
            topic_name, queue_id = redelivery.topic, redelivery.queue_id
        sys_flag = _checked_sys_flag(target)
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= MessageSysFlag.MULTI_TAGS

        def template(born_host_bytes: int, unit_flags: int = 0) -> RecordTemplate:
            return RecordTemplate(
                topic_name,
                queue_id,
                flag=target.flag,
                sys_flag=sys_flag | unit_flags,
                reconsume_times=target.reconsume_times,
                born_host_bytes=born_host_bytes,
                store_host=self._store_host,
                append_crc=self._settings.append_properties_crc,
            )

        queue = self._store.queues.get_or_create(topic_name, queue_id)
        route = _Route(
            self._checker.version,
            queue,
            template(8),
            template(20),
            sys_flag,
            redelivery is not None,
            redelivery is not None or _is_prepared(target),
            partial(template, unit_flags=_UNIT_FLAGS) if isinstance(queue, BatchConsumeQueue) else None,
            self._statistics.of_topic(topic_name),
            self._checker.wanted_type(topic),
        )
        # What is decided about a retry topic changes with its group, and with the locks of its members.
        is_retry = target.topic.startswith(RETRY_PREFIX)
        if not is_retry and _characters(target) <= _MAX_REMEMBERED_CHARACTERS:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[target, queue_id] = route
        return route

    def _put_error(self, error: StoreUnavailable | MessageRejected) -> CommandError:
        """The one table from what the store says to what travels."""
        self._statistics.put_failures += 1
        if isinstance(error, (TimersOff, TimerCongested)):
            return CommandError(ResponseCode.SYSTEM_ERROR, str(error))
        if isinstance(error, MessageRejected):
            return CommandError(ResponseCode.MESSAGE_ILLEGAL, str(error))
        return CommandError(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}. Nothing was stored"
        )

    def _illegal_body(self, size: int) -> CommandError:
        limit = self._settings.max_message_size
        remark = (
            "the message has no body"
            if size == 0
            else f"the message's body is {size} bytes, the limit is {limit} (maxMessageSize)"
        )
        return CommandError(ResponseCode.MESSAGE_ILLEGAL, remark)


def _waits(properties: bytes) -> bool:
    """Whether a producer wants to hear of its message only once it is on the disk (MessageBatch, Message)."""
    value = find_property(properties, b"WAIT")
    return value is None or value.lower() == b"true"


def _checked_sys_flag(target: SendTarget) -> int:
    """The system flag without bits that are not the producer's. Raises CommandError."""
    sys_flag = target.sys_flag
    transaction = MessageSysFlag.transaction_type(sys_flag)
    if transaction == MessageSysFlag.TRANSACTION_ROLLBACK:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL, "a message cannot be sent as one that was rolled back"
        )
    if transaction and target.batch:
        raise batch_in_transaction()
    if sys_flag & MessageSysFlag.INNER_BATCH:
        raise CommandError(
            ResponseCode.MESSAGE_ILLEGAL,
            "a batch that is stored as one message (system flag bit 7) is not supported by this broker",
        )
    return sys_flag & ~_HOST_BITS


def _is_prepared(target: SendTarget) -> bool:
    return MessageSysFlag.transaction_type(target.sys_flag) == MessageSysFlag.TRANSACTION_PREPARED


def _characters(target: SendTarget) -> int:
    texts = (target.producer_group, target.default_topic, target.broker_name or "")
    return sum(map(len, texts))

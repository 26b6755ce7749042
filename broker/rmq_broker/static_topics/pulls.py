"""Pulls from logical queues: codes 11 and 361 for static topics.

Source: Apache RocketMQ 5.3.3, PullMessageProcessor.rewriteRequestForStaticTopic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Eventual, HeldAnswer
from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import deferred_answer
from rmq_remoting.framing import FrameDecoder
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.sys_flags import PullSysFlag

from ..topics.lookup import CREATE_TOPIC, no_such_topic
from ..topics.queue_mapping import is_ended, item_at, located_item, offset_delta, physical_offset
from .other_brokers import refused
from .pull_offsets import PULL_CODES, ItemPull, PullOffsets
from .requests import physical_fields, rewritten

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..topics.queue_mapping import QueueMapping
    from ..topics.table import TopicTable
    from .other_brokers import OtherBrokers

PullPhysical = Callable[["Connection", RemotingCommand], Eventual]

# How long a client waits that has read all of an item while the next one is not located, which takes a
# remapping some milliseconds. Clients pull again at once.
_PAUSE_SECONDS: Final = 0.2


class LogicalPulls:
    """Passes pulls from logical queues on to physical queues, here or at another broker."""

    def __init__(self, topics: TopicTable, brokers: OtherBrokers) -> None:
        self._topics = topics
        self._brokers = brokers

    def pull(self, connection: Connection, command: RemotingCommand, pull_physical: PullPhysical) -> Eventual:
        """Answer a pull from a static topic; `pull_physical` answers one from a queue of this broker.

        Raises CommandError, HeaderError.
        """
        header = PullMessageRequestHeader.decode(command.ext_fields)
        mapping = self._topics.mappings.get(header.topic)
        if mapping is None:
            raise no_such_topic(header.topic, CREATE_TOPIC)
        items = mapping.led_items(header.queue_id)
        item = located_item(header.topic, header.queue_id, items, header.queue_offset)
        pull = ItemPull(items, item, physical_offset(item, header.queue_offset))
        if not mapping.is_here(item):
            asked = self._ask(command, header, pull)
            return deferred_answer(asked, "pull from another broker of a static topic")
        fields = _fields_here(command, header, mapping, pull)
        return _translated(pull_physical(connection, rewritten(command, fields)), partial(_translate, pull))

    async def _ask(
        self, command: RemotingCommand, header: PullMessageRequestHeader, pull: ItemPull
    ) -> Answer:
        """Pull from an item at another broker. Raises CommandError."""
        broker_name = pull.item.broker_name or ""
        # The other broker neither holds the pull, since the next message may come to this one, nor commits.
        sys_flag = header.sys_flag & ~(PullSysFlag.SUSPEND | PullSysFlag.COMMIT_OFFSET)
        fields = _fields(command, header, pull, sys_flag)
        response = await self._brokers.ask(header.topic, broker_name, RequestCode.PULL_MESSAGE, fields)
        if response.code not in PULL_CODES:
            raise refused(response, broker_name)
        answer = command.response(response.code, response.remark, response.ext_fields, response.body)
        translated = _with_logical_offsets(pull, answer)
        is_waiting = translated.code == ResponseCode.PULL_NOT_FOUND and header.sys_flag & PullSysFlag.SUSPEND
        if is_waiting:
            await asyncio.sleep(_PAUSE_SECONDS)
        return translated


def _fields_here(
    command: RemotingCommand, header: PullMessageRequestHeader, mapping: QueueMapping, pull: ItemPull
) -> dict[str, str]:
    """Return the fields of a pull from a queue of this broker.

    A pull is held only at the leader, since no other item gets messages. The offset that a pull carries is
    committed if it belongs to the same item; consumers commit offsets by requests of their own, too. Apache's
    broker commits the logical offset to the physical queue.
    """
    sys_flag = header.sys_flag
    if not pull.is_at_leader:
        sys_flag &= ~PullSysFlag.SUSPEND
    is_of_item = item_at(pull.items, header.commit_offset) is pull.item
    if not is_of_item or header.commit_offset < pull.item.logic_offset:
        sys_flag &= ~PullSysFlag.COMMIT_OFFSET
    return _fields(command, header, pull, sys_flag)


def _fields(
    command: RemotingCommand, header: PullMessageRequestHeader, pull: ItemPull, sys_flag: int
) -> dict[str, str]:
    item, count = pull.item, header.max_msg_nums
    if is_ended(item):
        count = min(count, item.end_offset - item.start_offset)
    return physical_fields(
        command.ext_fields,
        item.queue_id,
        queueOffset=pull.asked_offset,
        commitOffset=max(0, physical_offset(item, header.commit_offset)),
        maxMsgNums=count,
        sysFlag=sys_flag,
    )


def _translated(result: Eventual, translate: Callable[[Answer], Answer]) -> Eventual:
    """Return a result with a translated answer; a held one stays held."""
    if not isinstance(result, asyncio.Future):
        return translate(result)
    if isinstance(result, HeldAnswer):
        held = HeldAnswer()
        result.taken_by(partial(_pass_on, held, translate))
        return held
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    result.add_done_callback(partial(_pass_on, future, translate))
    return future


def _pass_on(
    future: asyncio.Future[Answer], translate: Callable[[Answer], Answer], ended: asyncio.Future[Answer]
) -> None:
    if ended.cancelled():
        future.cancel()
        return
    error = ended.exception()
    if future.done():
        return
    try:
        if error is not None:
            raise error
        future.set_result(translate(ended.result()))
    except Exception as problem:
        future.set_exception(problem)


def _translate(pull: ItemPull, answer: Answer) -> Answer:
    """Return the answer of a physical queue with the offsets of the logical queue."""
    if isinstance(answer, bytes):
        (answer,) = FrameDecoder().feed(answer)
    if answer is None or answer.code not in PULL_CODES:
        return answer
    return _with_logical_offsets(pull, answer)


def _with_logical_offsets(pull: ItemPull, answer: RemotingCommand) -> RemotingCommand:
    header = PullMessageResponseHeader.decode(answer.ext_fields)
    offsets, item = pull.in_logical_queue(
        PullOffsets(answer.code, header.next_begin_offset, header.min_offset, header.max_offset)
    )
    answer.code, header.next_begin_offset, header.min_offset, header.max_offset = offsets
    header.offset_delta = offset_delta(item)
    # A replica that another broker suggests is none of this broker's.
    header.suggest_which_broker_id = MASTER_BROKER_ID
    answer.ext_fields.update(header.encode())
    return answer

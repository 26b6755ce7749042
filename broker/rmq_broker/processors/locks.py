"""Queue locks of ordered consumers: codes 41 and 42.

Source of the rules: Apache RocketMQ 5.3.3, AdminBrokerProcessor. Without replicas, locking in strict mode (by
a majority of the replicas) equals normal locking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError

from ..groups.lookup import CREATE_GROUP_FIRST, existing_group

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.message_queue import MessageQueue

    from ..clients.queue_locks import QueueLocks
    from ..groups.table import SubscriptionGroupTable
    from ..topics.table import TopicTable


class QueueLockProcessor:
    """Locks only existing queues for existing groups, so that the table is bounded."""

    def __init__(
        self, locks: QueueLocks, groups: SubscriptionGroupTable, topics: TopicTable, broker_name: str
    ) -> None:
        self._locks = locks
        self._groups = groups
        self._topics = topics
        self._broker_name = broker_name

    def lock_batch(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """41: lock queues; the response lists those that the client now holds.

        Raises CommandError for an unknown group, and for a request without client id.
        """
        body = LockBatchRequestBody.decode_request(request.body)
        _check_client(body.client_id)
        existing_group(self._groups, body.consumer_group, CREATE_GROUP_FIRST)
        wanted = dict.fromkeys(body.mq_set)
        known = [queue for queue in wanted if self._is_here(queue)]
        held = self._locks.lock(body.consumer_group, known, body.client_id)
        unknown = next((queue for queue in wanted if not self._is_here(queue)), None)
        remark = None if unknown is None else f"this broker has no {unknown}: not locked"
        response = LockBatchResponseBody(lock_ok_mq_set=held)
        return request.response(ResponseCode.SUCCESS, remark, body=response.encode())

    def unlock_batch(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """42: unlock queues; locks of other clients stay, and the remark names them."""
        body = UnlockBatchRequestBody.decode_request(request.body)
        _check_client(body.client_id)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        remark = None
        for queue in body.mq_set:
            holder = self._locks.holder(body.consumer_group, queue)
            if holder is not None:
                remark = f"{holder} holds {queue}: not unlocked"
                break
        return request.response(ResponseCode.SUCCESS, remark)

    def _is_here(self, queue: MessageQueue) -> bool:
        config, mapping = self._topics.get(queue.topic), self._topics.mappings.get(queue.topic)
        if mapping is not None:  # the broker name of a logical queue stands for its scope
            return queue.queue_id in mapping.leaders
        if config is None or queue.broker_name != self._broker_name:
            return False
        return 0 <= queue.queue_id < max(config.read_queue_nums, config.write_queue_nums)


def _check_client(client_id: str) -> None:
    if not client_id:
        raise CommandError(ResponseCode.INVALID_PARAMETER, "clientId, the holder of the locks, is empty")

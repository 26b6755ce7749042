"""Server-side assignment of queues: codes 400, 401 and 402 (QueryAssignmentProcessor)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.assignment import (
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rmq_remoting.bodies.heartbeat import MessageModel
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import Persist, answer_when_persisted, deferred_answer
from rmq_remoting.errors import CommandError

from ..delivery.turns import ITEMS_PER_SLICE
from ..groups.lookup import CREATE_GROUP_FIRST, existing_group
from ..groups.names import group_name_problem
from ..pop.assignment import STRATEGIES, shared_for_pop
from ..topics.lookup import CREATE_TOPIC, existing_topic
from ..topics.names import RETRY_PREFIX, topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq_remoting.connection import Connection
    from rmq_remoting.message_queue import MessageQueue

    from ..clients.consumers import ConsumerTable
    from ..delivery.turns import LoopSlices
    from ..groups.table import SubscriptionGroupTable
    from ..pop.request_modes import RequestModes
    from ..pop.routes import QueueRoutes
    from ..settings.pop import PopSettings
    from ..topics.table import TopicTable

log = logging.getLogger("rmq.broker.processors")

# Begin and end of an encoded QueryAssignmentResponseBody; the list of queues is between them.
_BEGIN: Final = b'{"messageQueueAssignments":['
_END: Final = b"]}"


class AssignmentProcessor:
    """Assigns queues to clients, in pull or pop mode."""

    def __init__(
        self,
        settings: PopSettings,
        consumers: ConsumerTable,
        routes: QueueRoutes,
        modes: RequestModes,
        slices: LoopSlices,
    ) -> None:
        """`slices`: large answers are encoded in these."""
        self._settings = settings
        self._consumers = consumers
        self._routes = routes
        self._modes = modes
        self._slices = slices

    def query(self, connection: Connection, request: RemotingCommand) -> Result:
        """400: the queues of a client. On an error the client keeps its current queues."""
        body = QueryAssignmentRequestBody.decode_request(request.body)
        problem = topic_name_problem(body.topic) or group_name_problem(body.consumer_group)
        if problem is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, problem)
        return deferred_answer(self._answer(connection, request, body), "query assignment")

    async def _answer(
        self, connection: Connection, request: RemotingCommand, body: QueryAssignmentRequestBody
    ) -> Answer:
        mode = self._modes.get(body.topic, body.consumer_group)
        queues = await self._routes.queues_of(body.topic)
        try:
            mine = self._divide(body, mode, queues)
        except ValueError as error:
            nothing = QueryAssignmentResponseBody(message_queue_assignments=None)
            return request.response(ResponseCode.SUCCESS, str(error), body=nothing.encode())
        return request.response(ResponseCode.SUCCESS, body=await self._encoded(connection, mine, mode.mode))

    async def _encoded(
        self, connection: Connection, queues: Sequence[MessageQueue], mode: MessageRequestMode
    ) -> bytes:
        """Return the encoded assignment, made in slices: a topic may have 65,536 queues."""
        parts: list[bytes] = []
        for first in range(0, len(queues), ITEMS_PER_SLICE):
            if first:
                await self._slices.pause(connection)
            some = queues[first : first + ITEMS_PER_SLICE]
            part = QueryAssignmentResponseBody(
                message_queue_assignments=[
                    MessageQueueAssignment(message_queue=queue, mode=mode) for queue in some
                ]
            )
            parts.append(part.encode().removeprefix(_BEGIN).removesuffix(_END))
        return b"%b%b%b" % (_BEGIN, b",".join(parts), _END)

    def _divide(
        self,
        body: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
        queues: list[MessageQueue] | None,
    ) -> list[MessageQueue]:
        """Return the client's queues. Raises ValueError with the reason if they cannot be determined."""
        if queues is None:
            raise ValueError(f"no name server knows topic {body.topic}")
        if body.message_model is MessageModel.BROADCASTING or not self._settings.server_load_balancer_enable:
            return queues
        group = self._consumers.find_group(body.consumer_group)
        if group is None:
            raise ValueError(f"no member of group {body.consumer_group} has sent a heartbeat here yet")
        strategy = STRATEGIES.get(body.strategy_name or "")
        if strategy is None:
            names = ", ".join(STRATEGIES)
            raise ValueError(f"unknown allocation strategy {body.strategy_name!r}: this broker knows {names}")
        clients = sorted(group.client_ids())
        if mode.mode is MessageRequestMode.POP:
            return shared_for_pop(strategy, body.client_id, queues, clients, mode.pop_share_queue_num)
        return strategy(body.client_id, queues, clients)


class RequestModeProcessor:
    """Consume modes of groups: pull or pop."""

    def __init__(
        self, modes: RequestModes, topics: TopicTable, groups: SubscriptionGroupTable, persist: Persist
    ) -> None:
        self._modes = modes
        self._topics = topics
        self._groups = groups
        self._persist = persist

    def set(self, connection: Connection, request: RemotingCommand) -> Result:
        """401: set a group's mode for a topic; answered when it is persisted. Raises CommandError."""
        mode = SetMessageRequestModeRequestBody.decode_request(request.body)
        if mode.topic.startswith(RETRY_PREFIX):
            raise CommandError(
                ResponseCode.NO_PERMISSION, f"{mode.topic} is a retry topic: set the mode of the topic itself"
            )
        existing_topic(self._topics, mode.topic, CREATE_TOPIC)
        existing_group(self._groups, mode.consumer_group, CREATE_GROUP_FIRST)
        log.info(
            "request mode changed peer=%s group=%s mode=%s topic=%s",
            connection.peer,
            mode.consumer_group,
            mode.mode,
            mode.topic,
        )
        self._modes.set(mode)
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._persist)

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """402: all modes, for slaves."""
        return request.response(ResponseCode.SUCCESS, body=self._modes.encode())

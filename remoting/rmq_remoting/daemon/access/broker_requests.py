"""What each request to a broker does with which resource: the needs that a user's rules must allow.

The broker has this table, and the proxy's remoting port, which passes such requests on.

Codes that are not listed need rights on the whole cluster. Source: Apache RocketMQ 5.3.3,
DefaultAuthorizationContextBuilder and the annotations of the request headers. Apache's broker checks only
codes with such annotations, and serves all others to every known user: changes of its configuration, of
consumer groups, batch acknowledgements and more. Differences are listed in docs/security.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ...bodies.assignment import QueryAssignmentRequestBody, SetMessageRequestModeRequestBody
from ...bodies.group import SubscriptionGroupConfig, SubscriptionGroupList
from ...bodies.heartbeat import HeartbeatData
from ...bodies.lock import LockBatchRequestBody, UnlockBatchRequestBody
from ...bodies.pop import BatchAckMessageRequestBody
from ...bodies.topic import CreateTopicListRequestBody
from ...codes import RequestCode as Code
from .needs import Actions, Need, with_short_codes
from .policies import Action, cluster, group, topic

if TYPE_CHECKING:
    from ...command import RemotingCommand

_RETRY_PREFIX: Final = "%RETRY%"

PUB: Final[Actions] = (Action.PUB,)
SUB: Final[Actions] = (Action.SUB,)
_GET: Final[Actions] = (Action.GET,)
UPDATE: Final[Actions] = (Action.UPDATE,)
_CREATE: Final[Actions] = (Action.CREATE,)
_DELETE: Final[Actions] = (Action.DELETE,)
READ: Final[Actions] = (Action.SUB, Action.GET)
_MOVE: Final[Actions] = (Action.SUB, Action.UPDATE)

# Separators of group and topic in the names of POP's retry topics.
_POP_SEPARATORS: Final = ("+", "_")


class Fields(NamedTuple):
    """The fields of a header that name topics and groups; absent ones are skipped."""

    actions: Actions
    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    topic_lists: tuple[str, ...] = ()  # names separated by semicolons
    may_be_popped: bool = False  # the topic may be a retry topic of a group that pops


_BY_FIELDS: Final[Mapping[int, Fields]] = {
    Code.RECALL_MESSAGE: Fields(PUB, topics=("topic",)),
    Code.CONSUMER_SEND_MSG_BACK: Fields(SUB, groups=("group",)),
    Code.PULL_MESSAGE: Fields(SUB, groups=("consumerGroup",), topics=("topic",)),
    Code.LITE_PULL_MESSAGE: Fields(SUB, groups=("consumerGroup",), topics=("topic",)),
    Code.POP_MESSAGE: Fields(SUB, groups=("consumerGroup",), topics=("topic",)),
    Code.PEEK_MESSAGE: Fields(SUB, groups=("consumerGroup",), topics=("topic",)),
    Code.NOTIFICATION: Fields(SUB, groups=("consumerGroup",), topics=("topic",)),
    Code.POLLING_INFO: Fields(READ, groups=("consumerGroup",), topics=("topic",)),
    Code.ACK_MESSAGE: Fields(SUB, groups=("consumerGroup",), topics=("topic",), may_be_popped=True),
    Code.CHANGE_MESSAGE_INVISIBLETIME: Fields(
        SUB, groups=("consumerGroup",), topics=("topic",), may_be_popped=True
    ),
    Code.GET_CONSUMER_LIST_BY_GROUP: Fields(READ, groups=("consumerGroup",)),
    Code.QUERY_CONSUMER_OFFSET: Fields(READ, groups=("consumerGroup",), topics=("topic",)),
    Code.UPDATE_CONSUMER_OFFSET: Fields(_MOVE, groups=("consumerGroup",), topics=("topic",)),
    # A consumer asks for these, too.
    Code.GET_MAX_OFFSET: Fields(READ, topics=("topic",)),
    Code.GET_MIN_OFFSET: Fields(READ, topics=("topic",)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: Fields(READ, topics=("topic",)),
    Code.GET_EARLIEST_MSG_STORETIME: Fields(READ, topics=("topic",)),
    Code.QUERY_MESSAGE: Fields(READ, topics=("topic",)),
    Code.VIEW_MESSAGE_BY_ID: Fields(READ, topics=("topic",)),
    Code.QUERY_CONSUME_QUEUE: Fields(_GET, groups=("consumerGroup",), topics=("topic",)),
    Code.UPDATE_AND_CREATE_TOPIC: Fields(_CREATE, topics=("topic",)),
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: Fields(_CREATE, topics=("topic",)),
    Code.DELETE_TOPIC_IN_BROKER: Fields(_DELETE, topics=("topic",)),
    Code.GET_TOPIC_CONFIG: Fields(_GET, topics=("topic",)),
    Code.GET_TOPIC_STATS_INFO: Fields(_GET, topics=("topic",)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Fields(_GET, topics=("topic",)),
    Code.RESUME_CHECK_HALF_MESSAGE: Fields(UPDATE, topics=("topic",)),
    Code.DELETE_SUBSCRIPTIONGROUP: Fields(_DELETE, groups=("groupName",)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: Fields(_GET, groups=("group",)),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: Fields(UPDATE, groups=("group",), topics=("topic",)),
    Code.CLONE_GROUP_OFFSET: Fields(UPDATE, groups=("srcGroup", "destGroup"), topics=("topic",)),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Fields(UPDATE, groups=("group",), topics=("topic",)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Fields(_GET, groups=("group",), topics=("topic",)),
    Code.GET_CONSUME_STATS: Fields(
        _GET, groups=("consumerGroup",), topics=("topic",), topic_lists=("topicList",)
    ),
    Code.QUERY_CONSUME_TIME_SPAN: Fields(_GET, groups=("group",), topics=("topic",)),
    Code.GET_CONSUMER_CONNECTION_LIST: Fields(_GET, groups=("consumerGroup",)),
    Code.GET_CONSUMER_RUNNING_INFO: Fields(_GET, groups=("consumerGroup",)),
    Code.CONSUME_MESSAGE_DIRECTLY: Fields(SUB, groups=("consumerGroup",), topics=("topic",)),
    Code.QUERY_TOPICS_BY_CONSUMER: Fields(_GET, groups=("group",)),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: Fields(_GET, groups=("group",), topics=("topic",)),
}

# Of the codes that need rights on the cluster, those that change nothing.
_CLUSTER_READS: Final = frozenset(
    {
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.QUERY_CORRECTION_OFFSET,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_ALL_PRODUCER_INFO,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_COLD_DATA_FLOW_CTR_INFO,
        Code.VIEW_BROKER_STATS_DATA,
    }
)

# Requests that touch nothing of others: a check of one's own subscription, replies to requests of clients,
# which reach only the client that waits for them, and a hint that the broker should ask its controller.
_FREE: Final = frozenset(
    {
        Code.CHECK_CLIENT_CONFIG,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
    }
)


# Of the requests with needs of their own, those of operators.
_OPERATORS: Final = frozenset(
    {
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    }
)
_CLIENT_ACTIONS: Final = (PUB, SUB, READ, _MOVE)


class RequestNeeds:
    """Finds the needs of requests to a broker of one cluster."""

    def __init__(self, cluster_name: str) -> None:
        self._cluster = cluster(cluster_name)
        special: dict[int, Callable[[RemotingCommand], Iterator[Need]]] = {
            Code.SEND_MESSAGE: lambda request: _send(request, "topic"),
            Code.SEND_MESSAGE_V2: lambda request: _send(request, "b"),
            Code.SEND_BATCH_MESSAGE: lambda request: _send(request, "b"),
            Code.END_TRANSACTION: self._end_transaction,
            Code.HEART_BEAT: _heartbeat,
            Code.UNREGISTER_CLIENT: _unregister,
            Code.LOCK_BATCH_MQ: _lock,
            Code.UNLOCK_BATCH_MQ: _unlock,
            Code.BATCH_ACK_MESSAGE: _batch_ack,
            Code.QUERY_ASSIGNMENT: _assignment,
            Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: _topics,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _groups,
        }
        self._special = with_short_codes(special)
        self._by_fields = with_short_codes(_BY_FIELDS)

    def of(self, request: RemotingCommand) -> list[Need]:
        """Return all needs of a request; none for one that every known user may make.

        A request that names no resource needs rights on the cluster. Raises HeaderDecodeError, BodyError.
        """
        code = request.code
        fields = self._by_fields.get(code)
        if fields is not None:
            needs = list(_of_fields(request, fields))
            return needs or [Need(self._cluster, fields.actions)]
        special = self._special.get(code)
        if special is not None:
            return list(special(request))
        if code in _FREE:
            return []
        return [Need(self._cluster, _GET if code in _CLUSTER_READS else UPDATE)]

    def is_administration(self, code: int) -> bool:
        """Whether a code is one of operators and tools, and not of producers and consumers."""
        if code in _OPERATORS:
            return True
        fields = self._by_fields.get(code)
        if fields is not None:
            return fields.actions not in _CLIENT_ACTIONS
        return code not in self._special and code not in _FREE

    def is_listed(self, code: int) -> bool:
        """Whether the needs of a code were decided, and are not those of codes that nobody knows."""
        known = (self._by_fields, self._special, _FREE, _CLUSTER_READS)
        return any(code in codes for codes in known)

    def _end_transaction(self, request: RemotingCommand) -> Iterator[Need]:
        """Clients before 5.x do not name the topic: their users need rights on the whole cluster."""
        name = request.ext_fields.get("topic", "")
        yield Need(topic(name) if name else self._cluster, PUB)


def _of_fields(request: RemotingCommand, wanted: Fields) -> Iterator[Need]:
    fields, actions = request.ext_fields, wanted.actions
    names = [name for key in wanted.groups if (name := fields.get(key))]
    for name in names:
        yield Need(group(name), actions)
    topics = [name for key in wanted.topics if (name := fields.get(key))]
    for key in wanted.topic_lists:
        topics += [name for name in fields.get(key, "").split(";") if name]
    for name in topics:
        if not (wanted.may_be_popped and any(is_pop_retry_topic(name, owner) for owner in names)):
            yield topic_need(name, actions)


def topic_need(name: str, actions: Actions) -> Need:
    """Return the need for a topic; a retry topic belongs to its group."""
    if name.startswith(_RETRY_PREFIX):
        return Need(group(name.removeprefix(_RETRY_PREFIX)), actions)
    return Need(topic(name), actions)


def is_pop_retry_topic(name: str, owner: str) -> bool:
    """Whether a topic may hold messages that a group popped before (`pop/retry_topics.py`)."""
    return name.startswith(tuple(f"{_RETRY_PREFIX}{owner}{separator}" for separator in _POP_SEPARATORS))


def _send(request: RemotingCommand, key: str) -> Iterator[Need]:
    name = request.ext_fields.get(key, "")
    # A consumer sends to its group's retry topic where it cannot return a message otherwise.
    yield topic_need(name, SUB if name.startswith(_RETRY_PREFIX) else PUB)


def _heartbeat(request: RemotingCommand) -> Iterator[Need]:
    for consumer in HeartbeatData.decode_request(request.body).consumer_data_set:
        yield Need(group(consumer.group_name), SUB)
        for subscription in consumer.subscription_data_set:
            if not subscription.topic.startswith(_RETRY_PREFIX):
                yield Need(topic(subscription.topic), SUB)


def _unregister(request: RemotingCommand) -> Iterator[Need]:
    name = request.ext_fields.get("consumerGroup")
    if name:
        yield Need(group(name), SUB)


def _lock(request: RemotingCommand) -> Iterator[Need]:
    yield from _locks(LockBatchRequestBody.decode_request(request.body))


def _unlock(request: RemotingCommand) -> Iterator[Need]:
    yield from _locks(UnlockBatchRequestBody.decode_request(request.body))


def _locks(body: LockBatchRequestBody | UnlockBatchRequestBody) -> Iterator[Need]:
    yield Need(group(body.consumer_group), SUB)
    for name in {queue.topic for queue in body.mq_set}:
        yield topic_need(name, SUB)


def _batch_ack(request: RemotingCommand) -> Iterator[Need]:
    acks = BatchAckMessageRequestBody.decode_request(request.body).acks
    for owner, name in {(ack.consumer_group, ack.topic) for ack in acks}:
        yield Need(group(owner), SUB)
        if not is_pop_retry_topic(name, owner):
            yield topic_need(name, SUB)


def _assignment(request: RemotingCommand) -> Iterator[Need]:
    body = QueryAssignmentRequestBody.decode_request(request.body)
    yield Need(group(body.consumer_group), READ)
    yield topic_need(body.topic, READ)


def _request_mode(request: RemotingCommand) -> Iterator[Need]:
    body = SetMessageRequestModeRequestBody.decode_request(request.body)
    yield Need(group(body.consumer_group), UPDATE)
    yield topic_need(body.topic, UPDATE)


def _topics(request: RemotingCommand) -> Iterator[Need]:
    for config in CreateTopicListRequestBody.decode_request(request.body).topic_config_list:
        yield topic_need(config.topic_name or "", _CREATE)


def _group(request: RemotingCommand) -> Iterator[Need]:
    config = SubscriptionGroupConfig.decode_request(request.body)
    yield Need(group(config.group_name), _CREATE)


def _groups(request: RemotingCommand) -> Iterator[Need]:
    for config in SubscriptionGroupList.decode_request(request.body).group_config_list:
        yield Need(group(config.group_name), _CREATE)

"""What each request does with which resource: the needs that a user's rules must allow.

A request about a cluster or a broker needs rights on that cluster. The cluster is the one that the request
names, and the one in which the name server knows the broker of the request: rights on one cluster must not be
enough to replace the address of another one's broker. A request that names neither, and a code that is not
listed, needs rights on every cluster, from a rule for `Cluster:*` or `*`.

Apache's name server has no access control. Its broker's rules for routes are followed (Apache RocketMQ 5.3.3,
DefaultAuthorizationContextBuilder), and the annotations of the name server's headers are as far as they name
resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.daemon.access.needs import Actions, Need, with_short_codes
from rmq_remoting.daemon.access.policies import EVERY_CLUSTER, Action, cluster, group, topic

from .brokers import BrokerTable

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand

_GET: Final[Actions] = (Action.GET,)
_UPDATE: Final[Actions] = (Action.UPDATE,)
_DELETE: Final[Actions] = (Action.DELETE,)
_CLIENT: Final[Actions] = (Action.PUB, Action.SUB, Action.GET)
_CONSUMER: Final[Actions] = (Action.SUB, Action.GET)
# A broker asks for its members before it registers; with this it needs no further right.
_BROKER_READ: Final[Actions] = (Action.GET, Action.UPDATE)

_RETRY_PREFIX: Final = "%RETRY%"
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"
_AUTO_CREATE_TOPIC: Final = "TBW102"

# Requests that name a cluster, a broker, or both.
_OF_BROKERS: Final[dict[int, Actions]] = {
    Code.REGISTER_BROKER: _UPDATE,
    Code.UNREGISTER_BROKER: _UPDATE,
    Code.BROKER_HEARTBEAT: _UPDATE,
    # Counts as a heartbeat of the broker.
    Code.QUERY_DATA_VERSION: _UPDATE,
    Code.GET_BROKER_MEMBER_GROUP: _BROKER_READ,
    Code.WIPE_WRITE_PERM_OF_BROKER: _UPDATE,
    Code.ADD_WRITE_PERM_OF_BROKER: _UPDATE,
}

_EVERY_CLUSTER: Final[dict[int, Actions]] = {
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _GET,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _GET,
    Code.GET_UNIT_TOPIC_LIST: _GET,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _GET,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _GET,
    Code.GET_KV_CONFIG: _GET,
    Code.GET_KVLIST_BY_NAMESPACE: _GET,
    Code.PUT_KV_CONFIG: _UPDATE,
    Code.DELETE_KV_CONFIG: _UPDATE,
    Code.GET_NAMESRV_CONFIG: _GET,
    Code.UPDATE_NAMESRV_CONFIG: _UPDATE,
    Code.AUTH_GET_USER: _GET,
    Code.AUTH_LIST_USER: _GET,
    Code.AUTH_GET_ACL: _GET,
    Code.AUTH_LIST_ACL: _GET,
    Code.AUTH_CREATE_USER: _UPDATE,
    Code.AUTH_UPDATE_USER: _UPDATE,
    Code.AUTH_DELETE_USER: _UPDATE,
    Code.AUTH_CREATE_ACL: _UPDATE,
    Code.AUTH_UPDATE_ACL: _UPDATE,
    Code.AUTH_DELETE_ACL: _UPDATE,
}

# Names and addresses of brokers, which every route has, too: clients ask for them to reach all brokers.
_FREE: Final = frozenset({Code.GET_BROKER_CLUSTER_INFO})

# Requests of clients and brokers, which come from everywhere. All others are those of operators.
_FROM_EVERYWHERE: Final = frozenset(
    {
        Code.GET_ROUTEINFO_BY_TOPIC,
        Code.GET_BROKER_CLUSTER_INFO,
        Code.REGISTER_BROKER,
        Code.UNREGISTER_BROKER,
        Code.BROKER_HEARTBEAT,
        Code.QUERY_DATA_VERSION,
        Code.GET_BROKER_MEMBER_GROUP,
        # From brokers with enableSingleTopicRegister.
        Code.REGISTER_TOPIC_IN_NAMESRV,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.GET_KV_CONFIG,
        Code.GET_KVLIST_BY_NAMESPACE,
    }
)


class NamesrvNeeds:
    """Finds the needs of requests to a name server."""

    def __init__(self, brokers: BrokerTable) -> None:
        self._brokers = brokers
        special: dict[int, Callable[[RemotingCommand], Iterator[Need]]] = {
            Code.GET_ROUTEINFO_BY_TOPIC: _route,
            Code.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            Code.DELETE_TOPIC_IN_NAMESRV: _delete_topic,
            Code.GET_TOPICS_BY_CLUSTER: _topics_by_cluster,
        }
        self._special = with_short_codes(special)
        self._of_brokers = with_short_codes(_OF_BROKERS)
        self._every_cluster = with_short_codes(_EVERY_CLUSTER)

    def of(self, request: RemotingCommand) -> list[Need]:
        """Return all needs of a request; none for one that every known user may make.

        Raises HeaderDecodeError, BodyError.
        """
        code = request.code
        special = self._special.get(code)
        if special is not None:
            return list(special(request))
        actions = self._of_brokers.get(code)
        if actions is not None:
            fields = request.ext_fields
            return self._of_cluster(fields.get("clusterName", ""), fields.get("brokerName", ""), actions)
        if code in _FREE:
            return []
        return [Need(EVERY_CLUSTER, self._every_cluster.get(code, _UPDATE))]

    def is_administration(self, code: int) -> bool:
        """Whether a code is one of operators and tools, and not of brokers and clients."""
        return code not in _FROM_EVERYWHERE

    def is_listed(self, code: int) -> bool:
        """Whether the needs of a code were decided, and are not those of codes that nobody knows."""
        known = (self._special, self._of_brokers, self._every_cluster, _FREE)
        return any(code in codes for codes in known)

    def _of_cluster(self, named: str, broker_name: str, actions: Actions) -> list[Need]:
        broker = self._brokers.get(broker_name)
        names = {named, "" if broker is None else broker.cluster} - {""}
        return [Need(cluster(name), actions) for name in sorted(names)] or [Need(EVERY_CLUSTER, actions)]

    def _register_topic(self, request: RemotingCommand) -> Iterator[Need]:
        """Return the needs for all clusters whose brokers get the topic."""
        queues = TopicRouteData.decode_request(request.body).queue_datas
        needs = {need for each in queues for need in self._of_cluster("", each.broker_name, _UPDATE)}
        yield from needs or {Need(EVERY_CLUSTER, _UPDATE)}


def _route(request: RemotingCommand) -> Iterator[Need]:
    name = request.ext_fields.get("topic", "")
    if name.startswith(_RETRY_PREFIX):
        yield Need(group(name.removeprefix(_RETRY_PREFIX)), _CONSUMER)
    # Producers ask for the first to create topics, and for the others to reply. A send needs its own rights.
    elif name != _AUTO_CREATE_TOPIC and not name.endswith(_REPLY_SUFFIX):
        yield Need(topic(name), _CLIENT)


def _delete_topic(request: RemotingCommand) -> Iterator[Need]:
    """The same as for the deletion on a broker."""
    name = request.ext_fields.get("topic", "")
    if name.startswith(_RETRY_PREFIX):
        yield Need(group(name.removeprefix(_RETRY_PREFIX)), _DELETE)
    else:
        yield Need(topic(name), _DELETE)


def _topics_by_cluster(request: RemotingCommand) -> Iterator[Need]:
    name = request.ext_fields.get("cluster", "")
    yield Need(cluster(name) if name else EVERY_CLUSTER, _GET)

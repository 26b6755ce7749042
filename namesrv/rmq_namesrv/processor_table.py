"""The processor table: every request code with its processor and tier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from rmq_remoting.codes import RequestCode
from rmq_remoting.daemon.access.acl_processor import AclAdminProcessor
from rmq_remoting.daemon.access.user_processor import UserAdminProcessor
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import MAX_REQUEST_BODY_BYTES
from rmq_remoting.tiers import InlineTier, PoolTier

from .config import NamesrvSettings
from .processors.config import ConfigProcessor
from .processors.kv import KvProcessor
from .processors.members import MemberProcessor
from .processors.permissions import PermissionProcessor
from .processors.registration import RegistrationProcessor
from .processors.route import RouteProcessor
from .processors.topics import TopicProcessor

# A request that has waited longer than this is refused. A client waits 3 s for a route and retries; brokers
# and operators wait longer.
_ROUTE_WAIT_MS: Final = 3000
_ADMIN_WAIT_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class Processors:
    """All processors of a name server."""

    route: RouteProcessor
    registration: RegistrationProcessor
    topics: TopicProcessor
    members: MemberProcessor
    permissions: PermissionProcessor
    kv: KvProcessor
    config: ConfigProcessor
    users: UserAdminProcessor
    acls: AclAdminProcessor


def fill_table(dispatcher: Dispatcher, processors: Processors, settings: NamesrvSettings) -> None:
    """Register every row."""
    capacity = settings.default_queue_capacity
    route = InlineTier("route", capacity=settings.client_request_queue_capacity, max_wait_ms=_ROUTE_WAIT_MS)
    # Inline, too: long jobs run in slices (slices.py) and are answered at their end.
    registration = InlineTier(
        "registration", capacity=settings.unregister_broker_queue_capacity, max_wait_ms=_ADMIN_WAIT_MS
    )
    admin = InlineTier("admin", capacity=capacity, max_wait_ms=_ADMIN_WAIT_MS)
    lists = PoolTier("lists", threads=settings.default_threads, capacity=capacity, max_wait_ms=_ADMIN_WAIT_MS)
    it, row = processors, partial(dispatcher.register, max_body_bytes=MAX_REQUEST_BODY_BYTES)

    row([RequestCode.GET_ROUTEINFO_BY_TOPIC], it.route.get_route_info_by_topic, route)

    # All topics of a broker: bounded by the size of a frame, and while it is decoded.
    dispatcher.register([RequestCode.REGISTER_BROKER], it.registration.register_broker, registration)
    row([RequestCode.UNREGISTER_BROKER], it.registration.unregister_broker, registration)
    row([RequestCode.QUERY_DATA_VERSION], it.registration.query_data_version, registration)
    row([RequestCode.BROKER_HEARTBEAT], it.registration.broker_heartbeat, registration)
    row([RequestCode.REGISTER_TOPIC_IN_NAMESRV], it.topics.register_topic, registration)
    row([RequestCode.DELETE_TOPIC_IN_NAMESRV], it.topics.delete_topic, registration)
    row([RequestCode.WIPE_WRITE_PERM_OF_BROKER], it.permissions.wipe_write_permission, registration)
    row([RequestCode.ADD_WRITE_PERM_OF_BROKER], it.permissions.add_write_permission, registration)

    row([RequestCode.GET_BROKER_CLUSTER_INFO], it.members.get_broker_cluster_info, admin)
    row([RequestCode.GET_BROKER_MEMBER_GROUP], it.members.get_broker_member_group, admin)
    row([RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS], it.topics.get_system_topic_list, admin)
    row([RequestCode.PUT_KV_CONFIG], it.kv.put_kv_config, admin)
    row([RequestCode.GET_KV_CONFIG], it.kv.get_kv_config, admin)
    row([RequestCode.DELETE_KV_CONFIG], it.kv.delete_kv_config, admin)
    row([RequestCode.GET_KVLIST_BY_NAMESPACE], it.kv.get_kv_list_by_namespace, admin)
    row([RequestCode.UPDATE_NAMESRV_CONFIG], it.config.update_config, admin)
    row([RequestCode.GET_NAMESRV_CONFIG], it.config.get_config, admin)

    row([RequestCode.AUTH_CREATE_USER], it.users.create, admin)
    row([RequestCode.AUTH_UPDATE_USER], it.users.update, admin)
    row([RequestCode.AUTH_DELETE_USER], it.users.delete, admin)
    row([RequestCode.AUTH_GET_USER], it.users.get, admin)
    row([RequestCode.AUTH_LIST_USER], it.users.list, admin)
    row([RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL], it.acls.set, admin)
    row([RequestCode.AUTH_DELETE_ACL], it.acls.delete, admin)
    row([RequestCode.AUTH_GET_ACL], it.acls.get, admin)
    row([RequestCode.AUTH_LIST_ACL], it.acls.list, admin)

    row([RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER], it.topics.get_all_topic_list, lists)
    row([RequestCode.GET_TOPICS_BY_CLUSTER], it.topics.get_topics_by_cluster, lists)
    row([RequestCode.GET_UNIT_TOPIC_LIST], it.topics.get_unit_topic_list, lists)
    row([RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST], it.topics.get_has_unit_sub_topic_list, lists)
    row([RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST], it.topics.get_has_unit_sub_ununit_topic_list, lists)

"""Routes of topics: GET_ROUTEINFO_BY_TOPIC (105)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader

from ..brokers import BrokerTable
from ..config import RouteSettings
from ..kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from ..route_bodies import RouteBodies

# V4_9_4 in Apache's MQVersion: clients since this version are answered in standard JSON, requested or not.
_VERSION_WITH_STANDARD_JSON: Final = 401

# Ext fields that a client in zone mode adds to its requests (Apache RocketMQ 5.3.3, MixAll).
_ZONE_NAME: Final = "__ZONE_NAME"
_ZONE_MODE: Final = "__ZONE_MODE"


class RouteProcessor:
    """Answers route requests with encoded bodies. `clock` returns seconds; readiness counts from creation."""

    def __init__(
        self,
        bodies: RouteBodies,
        brokers: BrokerTable,
        kv_config: KvConfig,
        settings: RouteSettings,
        clock: Callable[[], float],
    ) -> None:
        self._bodies = bodies
        self._brokers = brokers
        self._kv_config = kv_config
        self._settings = settings
        self._clock = clock
        self._began = clock()

    def get_route_info_by_topic(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """105. The body is a TopicRouteData."""
        fields = request.ext_fields
        header = GetRouteInfoRequestHeader.decode(fields)
        settings, topic = self._settings, header.topic
        if settings.need_wait_for_service:
            self._check_ready()
        body = self._bodies.get(
            topic,
            standard=request.version >= _VERSION_WITH_STANDARD_JSON or bool(header.accept_standard_json_only),
            zone_name=_wanted_zone(fields) if _ZONE_MODE in fields else None,
            order_config=(
                self._kv_config.get(ORDER_TOPIC_NAMESPACE, topic) if settings.order_message_enable else None
            ),
        )
        if body is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, self._no_route(topic))
        return request.response(ResponseCode.SUCCESS, body=body)

    def _check_ready(self) -> None:
        """Refuse requests right after the start, before brokers have registered. Raises CommandError."""
        left = self._settings.wait_seconds_for_service - (self._clock() - self._began)
        if left > 0:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"the name server is not ready: it waits for brokers to register ({left:.0f} s left)",
            )

    def _no_route(self, topic: str) -> str:
        brokers = self._brokers.address_count
        if brokers == 0:
            return f"no route for topic {topic}: no broker is registered with this name server"
        return (
            f"no route for topic {topic}: no broker registered with this name server has it (there are "
            f"{brokers}); create it (mqadmin updateTopic), or send to it with autoCreateTopicEnable=true set "
            "on a broker"
        )


def _wanted_zone(fields: dict[str, str]) -> str | None:
    """Return the zone to which the client restricts the route, if there is one."""
    if fields[_ZONE_MODE].lower() != "true":
        return None
    return fields.get(_ZONE_NAME, "").strip() or None

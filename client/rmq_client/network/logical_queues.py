"""Logical queues of static topics, and the brokers that lead them.

Source: Apache RocketMQ 5.3.3, MQClientInstance.topicRouteData2EndpointsForStaticTopic and
TopicQueueMappingUtils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo

# Logical queues carry a broker name of their own, the same in all clients (MixAll).
_PREFIX: Final = "__syslo__"
_GLOBAL_SCOPE: Final = "__global__"
# In place of a broker's name: no broker leads the queue.
_NO_LEADER: Final = "__syslo__none__"


def is_logical(broker_name: str) -> bool:
    """Whether this is the broker name of logical queues."""
    return broker_name.startswith(_PREFIX)


def leaders_of(mappings: Iterable[TopicQueueMappingInfo]) -> dict[tuple[str, int], str]:
    """Return the broker that leads each logical queue, by the queue's broker name and id, in their order.

    `mappings`: one of each broker. The newest one of a queue counts. During a move a queue may have no
    leader: it has the name of a broker that does not exist then.
    """
    totals: dict[str, int] = {}
    leaders: dict[tuple[str, int], str] = {}
    for each in sorted(mappings, key=lambda mapping: mapping.epoch):
        name = _broker_name(each.scope)
        totals[name] = max(totals.get(name, 0), each.total_queues)
        for logical_id in each.current_id_map:
            leaders[name, logical_id] = each.broker_name or _NO_LEADER
    for name, total in totals.items():
        for logical_id in range(total):
            leaders.setdefault((name, logical_id), _NO_LEADER)
    return dict(sorted(leaders.items()))


def _broker_name(scope: str) -> str:
    return _PREFIX + (scope[2:] if scope == _GLOBAL_SCOPE else scope)

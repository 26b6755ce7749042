"""Consumer group names (Apache RocketMQ 5.3.3, MixAll, Validators)."""

from __future__ import annotations

from typing import Final

from rmq_remoting.errors import shown

from ..topics.names import has_illegal_characters

MAX_GROUP_LENGTH: Final = 255

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
FILTER_SERVER_GROUP: Final = "FILTERSRV_CONSUMER"
SELF_TEST_GROUP: Final = "SELF_TEST_C_GROUP"
HTTP_PROXY_GROUP: Final = "CID_ONS-HTTP-PROXY"
PULL_GROUP: Final = "CID_ONSAPI_PULL"
PERMISSION_GROUP: Final = "CID_ONSAPI_PERMISSION"
OWNER_GROUP: Final = "CID_ONSAPI_OWNER"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

# System groups, created at a broker's first start (SubscriptionGroupManager.init).
SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    FILTER_SERVER_GROUP,
    SELF_TEST_GROUP,
    HTTP_PROXY_GROUP,
    PULL_GROUP,
    PERMISSION_GROUP,
    OWNER_GROUP,
    TRANSACTION_GROUP,
)


# Groups of tools and of the broker itself, which pull without being members (Apache RocketMQ 5.3.3, MixAll).
_SYSTEM_PULLERS: Final = frozenset(
    {*SYSTEM_GROUPS, "DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER"}
)


def producer_group_problem(name: str) -> str | None:
    """Return the remark for a producer group's name that is too long or not to be logged; None for others.

    Clients differ in the characters that they allow.
    """
    if not 0 < len(name) <= MAX_GROUP_LENGTH or not name.isprintable():
        return (
            f"the producer group name {shown(name)} is illegal: it has 1 to {MAX_GROUP_LENGTH} printable "
            "characters"
        )
    return None


def group_name_problem(name: str) -> str | None:
    """Return the remark for an invalid group name; None for a valid one."""
    if not name or name.isspace():
        return "the consumer group's name is blank"
    if len(name) > MAX_GROUP_LENGTH:
        return f"the consumer group's name has {len(name)} characters, the limit is {MAX_GROUP_LENGTH}"
    if has_illegal_characters(name):
        return (
            f"the consumer group name {name!r} is illegal: only letters, digits and the characters "
            "% | _ - are allowed"
        )
    return None


def is_system_puller(name: str) -> bool:
    """Whether a group of the system's pulls: flow control and `rejectPullConsumerEnable` spare it."""
    return name in _SYSTEM_PULLERS or is_system_group(name)


def is_system_group(name: str) -> bool:
    """Whether the broker itself consumes with the group."""
    return name.startswith(SYSTEM_GROUP_PREFIX)

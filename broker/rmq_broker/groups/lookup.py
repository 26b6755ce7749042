"""Look up a consumer group for a request, or refuse the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig

    from .table import SubscriptionGroupTable

# Advice to a client whose group is unknown; the first where a request never creates the group.
CREATE_GROUP_FIRST: Final = "create it"
CREATE_GROUP: Final = (
    "create it, or set autoCreateSubscriptionGroup=true, and raise maxAutoCreateGroupNums if it is reached"
)


def existing_group(groups: SubscriptionGroupTable, name: str, advice: str) -> SubscriptionGroupConfig:
    """Return the group's configuration; an unknown group is created where the settings allow it.

    Raises CommandError (SUBSCRIPTION_GROUP_NOT_EXIST) otherwise; `advice` tells the client what to do.
    """
    config = groups.find(name)
    if config is None:
        raise no_such_group(name, advice)
    return config


def no_such_group(name: str, advice: str) -> CommandError:
    """Return the refusal of a client's request for an unknown group that was not created by the request."""
    remark = f"consumer group {name} does not exist: {advice}"
    return CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


def unknown_group(name: str) -> CommandError:
    """Return the refusal of an administrator's request for an unknown group."""
    remark = f"consumer group {name} does not exist on this broker"
    return CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

"""Refusals that several processors give in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError

if TYPE_CHECKING:
    from rmq_remoting.bodies.group import SubscriptionGroupConfig
    from rmq_remoting.bodies.topic import TopicConfig

    from ..groups.table import SubscriptionGroupTable
    from ..topics.table import TopicTable


# What to do about it.
CREATE_IT: Final = "create it"
CREATE_GROUP: Final = "create it, or start the broker with autoCreateSubscriptionGroup=true"


def existing_topic(topics: TopicTable, name: str, advice: str | None = None) -> TopicConfig:
    """The topic's configuration. Raises CommandError, with what to do about it."""
    config = topics.get(name)
    if config is None:
        raise no_such_topic(name, advice)
    return config


def no_such_topic(name: str, advice: str | None = None) -> CommandError:
    """Nobody has created the topic."""
    problem = f"topic {name} does not exist on this broker"
    return CommandError(ResponseCode.TOPIC_NOT_EXIST, problem if advice is None else f"{problem}: {advice}")


def existing_group(groups: SubscriptionGroupTable, name: str, advice: str) -> SubscriptionGroupConfig:
    """The group's configuration; it is created where that is allowed. Raises CommandError."""
    config = groups.find(name)
    if config is None:
        raise no_such_group(name, advice)
    return config


def no_such_group(name: str, advice: str) -> CommandError:
    """Nobody has created the group that wants to consume, and it was not to be created by that."""
    remark = f"consumer group {name} does not exist: {advice}"
    return CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


def group_is_not_here(name: str) -> CommandError:
    """The group that an administrator asks about is unknown."""
    remark = f"consumer group {name} does not exist on this broker"
    return CommandError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

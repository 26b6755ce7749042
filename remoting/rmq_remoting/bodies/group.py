"""Consumer groups: their configuration and their members."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body, WireEnum
from .heartbeat import SubscriptionData
from .topic import DataVersion

_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DEFAULT_DELAYS_MS: Final = (
    *(seconds * _SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * _HOUR_MS for hours in (1, 2)),
)


class GroupRetryPolicyType(WireEnum):
    """How the delay before a redelivery grows."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Body):
    """Delays in ms: `initial` times `multiplier` to the power of the redeliveries so far, at most `max`."""

    initial: Int64 = 5 * _SECOND_MS
    max: Int64 = 2 * _HOUR_MS
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body):
    """Delays in ms, one for each redelivery; the last holds for all further ones."""

    next: list[Int64] = Field(default_factory=lambda: list(_DEFAULT_DELAYS_MS))


class GroupRetryPolicy(Body):
    """A retry policy of either type; without numbers the defaults of its type hold."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED


class SimpleSubscriptionData(Body):
    """A subscription as stored in the group's configuration."""

    expression: str | None = None
    expression_type: str | None = None
    topic: str
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    """Configuration of a consumer group on one broker."""

    attributes: dict[str, str] = Field(default_factory=dict)
    broker_id: Int64 = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: Int32 = 15
    group_name: str
    group_retry_policy: GroupRetryPolicy = Field(default_factory=GroupRetryPolicy)
    group_sys_flag: Int32 = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: Int32 = 16
    retry_queue_nums: Int32 = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: Int64 = 1


class SubscriptionGroupWrapper(Body):
    """All groups of a broker (its subscriptionGroup.json)."""

    data_version: DataVersion = Field(default_factory=DataVersion)
    # Bits of forbidden operations by group and topic. Apache's class of this name lacks the member, but its
    # SubscriptionGroupManager writes it, to the file and in the response to a request for all groups.
    forbidden_table: dict[str, dict[str, Int32]] | None = None
    subscription_group_table: dict[str, SubscriptionGroupConfig] = Field(default_factory=dict)


class SubscriptionGroupList(Body):
    """Groups to create or update at once."""

    group_config_list: list[SubscriptionGroupConfig] = Field(default_factory=list)


class GroupForbidden(Body):
    """Whether a group may read a topic."""

    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


class GroupList(Body):
    """Names of consumer groups."""

    group_list: list[str] = Field(default_factory=list)


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of a group's connected consumers."""

    consumer_id_list: list[str] = Field(default_factory=list)


class QuerySubscriptionResponseBody(Body):
    """A group's subscription to a topic; None if it has none."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None


class ConsumeByWho(Body):
    """The groups that have consumed a message, and those that have not."""

    consumed_group: list[str] = Field(default_factory=list)
    not_consumed_group: list[str] = Field(default_factory=list)
    offset: Int64 = 0
    queue_id: Int32 = 0
    topic: str | None = None

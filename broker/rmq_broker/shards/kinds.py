"""The kinds of entries that shards share, topics and groups, and the admin requests that carry them.

A supervisor sends a shard ordinary admin requests. A shard reports its entries and changes to the supervisor
in requests of the same codes. There the attributes of an entry are its attributes, not changes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Generic, TypeVar

from rmq_remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupList
from rmq_remoting.bodies.topic import CreateTopicListRequestBody, TopicConfig
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.consumer import DeleteSubscriptionGroupRequestHeader
from rmq_remoting.headers.topic import DeleteTopicRequestHeader

from .shared_table import Difference

ConfigT = TypeVar("ConfigT", TopicConfig, SubscriptionGroupConfig)

# Ext field of the report that ends those of all entries of a shard.
END_OF_REPORTS: Final = "endOfReports"
# Ext field with the name of a topic that is not shared, since each shard has another part of it.
NOT_SHARED: Final = "notShared"
# Ext field of a request that is answered when all reports before it are persisted.
CONFIRM: Final = "confirm"


@dataclass(frozen=True, slots=True)
class Kind(Generic[ConfigT]):
    """The requests for one kind of entries."""

    name: str
    update: RequestCode
    deletion: RequestCode
    name_of: Callable[[ConfigT], str]
    encode: Callable[[list[ConfigT]], bytes]
    decode: Callable[[bytes], list[ConfigT]]
    deletion_fields: Callable[[str], dict[str, str]]
    deleted_name: Callable[[Mapping[str, str]], str]

    def report(self, configs: list[ConfigT], *, oneway: bool = False) -> RemotingCommand:
        """Return the report of entries."""
        return RemotingCommand.request(self.update, body=self.encode(configs), oneway=oneway)

    def end_of_reports(self) -> RemotingCommand:
        """Return the report that no further entry follows."""
        return RemotingCommand.request(self.update, {END_OF_REPORTS: "true"}, self.encode([]))

    def deletion_of(self, name: str, *, oneway: bool = False) -> RemotingCommand:
        """Return the request, or the report, of a deletion."""
        return RemotingCommand.request(self.deletion, self.deletion_fields(name), oneway=oneway)

    def update_of(self, differences: Sequence[Difference[ConfigT]]) -> RemotingCommand:
        """Return the request that brings entries of a shard up to date; none of them is a deletion."""
        configs = [
            _with_attribute_changes(difference.wanted, difference.known)
            for difference in differences
            if difference.wanted is not None
        ]
        return RemotingCommand.request(self.update, body=self.encode(configs))


def _with_attribute_changes(wanted: ConfigT, known: ConfigT | None) -> ConfigT:
    """Return an entry whose attributes are those that differ from the known ones, by signed name."""
    before = {} if known is None else known.attributes
    changes = {f"+{key}": text for key, text in wanted.attributes.items() if before.get(key) != text}
    changes |= {f"-{key}": "" for key in before if key not in wanted.attributes}
    return wanted.model_copy(update={"attributes": changes})


def _encode_topics(configs: list[TopicConfig]) -> bytes:
    return CreateTopicListRequestBody(topic_config_list=configs).encode()


def _encode_groups(configs: list[SubscriptionGroupConfig]) -> bytes:
    return SubscriptionGroupList(group_config_list=configs).encode()


TOPICS: Final[Kind[TopicConfig]] = Kind(
    name="topic",
    update=RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    deletion=RequestCode.DELETE_TOPIC_IN_BROKER,
    name_of=attrgetter("topic_name"),
    encode=_encode_topics,
    decode=lambda body: CreateTopicListRequestBody.decode(body).topic_config_list,
    deletion_fields=lambda name: DeleteTopicRequestHeader(topic=name).encode(),
    deleted_name=lambda fields: DeleteTopicRequestHeader.decode(fields).topic,
)
GROUPS: Final[Kind[SubscriptionGroupConfig]] = Kind(
    name="group",
    update=RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    deletion=RequestCode.DELETE_SUBSCRIPTIONGROUP,
    name_of=attrgetter("group_name"),
    encode=_encode_groups,
    decode=lambda body: SubscriptionGroupList.decode(body).group_config_list,
    # Offsets are deleted only where an administrator asked for it.
    deletion_fields=lambda name: DeleteSubscriptionGroupRequestHeader(group_name=name).encode(),
    deleted_name=lambda fields: DeleteSubscriptionGroupRequestHeader.decode(fields).group_name,
)


def confirmation() -> RemotingCommand:
    """Return the request that is answered when all reports before it are persisted."""
    return RemotingCommand.request(TOPICS.update, {CONFIRM: "true"}, TOPICS.encode([]))


def exclusion(name: str) -> RemotingCommand:
    """Return the report of a topic that is not shared."""
    return RemotingCommand.request(TOPICS.update, {NOT_SHARED: name}, TOPICS.encode([]), oneway=True)

"""Consumer groups: create, change, delete, list, and show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from rmq_remoting.bodies.assignment import MessageRequestMode, SetMessageRequestModeRequestBody
from rmq_remoting.bodies.group import (
    GroupForbidden,
    GroupList,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rmq_remoting.bodies.route import TopicList
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.consumer import (
    DeleteSubscriptionGroupRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)

from ..errors import AlreadyExists, GroupNotFound, PermissionDenied
from ..names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from .arguments import checked
from .results import GroupSettings
from .topics import TopicAdmin

# Groups of brokers and tools (Apache RocketMQ 5.3.3, SubscriptionGroupManager and MixAll).
_SYSTEM_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)
_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"


class GroupAdmin(TopicAdmin):
    """Administration of consumer groups."""

    @checked
    async def create_group(
        self,
        group: str,
        *,
        ordered: bool = False,
        max_retries: int = 16,
        retry_queues: int = 1,
        consume_enabled: bool = True,
        broadcast_enabled: bool = True,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker_name: str | None = None,
        exists_ok: bool = False,
    ) -> None:
        """Create a consumer group on all masters.

        `ordered`: POP consumers of the group get messages in order. `max_retries`: redeliveries before a
        message becomes a dead letter. A master that has the group keeps it as it is: with `exists_ok` that is
        no error, otherwise AlreadyExists is raised and nothing is created. Raises ClientError.
        """
        group = self._namespace.checked_group(group)
        config = SubscriptionGroupConfig(
            group_name=group,
            consume_enable=consume_enabled,
            consume_broadcast_enable=broadcast_enabled,
            consume_message_orderly=ordered,
            retry_max_times=max_retries,
            retry_queue_nums=retry_queues,
            attributes=dict(attributes or {}),
        )
        masters = await self._masters(cluster, broker_name)
        there = set(await self._group_configs(group, masters))
        if there and not exists_ok:
            raise AlreadyExists(
                f"group {group} exists on {', '.join(sorted(there))}: pass exists_ok=True to leave it as it "
                "is there, or call update_group to change it"
            )
        await asyncio.gather(
            *(self._put_group(address, config) for name, address in masters.items() if name not in there)
        )

    @checked
    async def update_group(
        self,
        group: str,
        *,
        ordered: bool | None = None,
        max_retries: int | None = None,
        retry_queues: int | None = None,
        consume_enabled: bool | None = None,
        broadcast_enabled: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Change a group on all masters that have it; None leaves a property as it is.

        `consume_enabled=False` refuses the group's pulls. Raises GroupNotFound if no master has the group,
        and other ClientErrors.
        """
        group = self._namespace.checked_group(group)
        changes = {
            "consume_message_orderly": ordered,
            "retry_max_times": max_retries,
            "retry_queue_nums": retry_queues,
            "consume_enable": consume_enabled,
            "consume_broadcast_enable": broadcast_enabled,
        }
        masters = await self._masters(cluster, broker_name)
        found = await self._known_group(group, masters)
        update = {name: value for name, value in changes.items() if value is not None}
        await asyncio.gather(
            *(
                self._put_group(
                    masters[name],
                    config.model_copy(update={**update, "attributes": dict(attributes or {})}),
                )
                for name, config in found.items()
            )
        )

    @checked
    async def delete_group(
        self, group: str, *, keep_offsets: bool = False, keep_topics: bool = False, missing_ok: bool = False
    ) -> None:
        """Delete a group with its offsets, its retry topic and its dead letters from all masters.

        Its consumers should be stopped: brokers may create the group again for one that runs. Raises
        GroupNotFound for a group that no master has, unless `missing_ok`, and other ClientErrors.
        """
        name = self._namespace.checked_group(group)
        masters = await self._masters()
        if not missing_ok:
            await self._known_group(name, masters)
        header = DeleteSubscriptionGroupRequestHeader(group_name=name, clean_offset=not keep_offsets)
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        await asyncio.gather(
            *(
                self._api.call(address, code, header, about=f"delete group {name}")
                for address in masters.values()
            )
        )
        if not keep_topics:
            for prefix in (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX):
                await self.delete_topic(prefix + name, missing_ok=True)

    @checked
    async def groups(self, *, system: bool = False) -> list[str]:
        """Return the names of all groups, or of those in the namespace; with `system` also brokers' own.

        Raises ClientError.
        """
        namespace = self._namespace
        tables = await self._of_each(await self._masters(), self._all_groups)
        names = {name for table in tables.values() for name in table}
        return sorted(
            namespace.unwrap(name)
            for name in names
            if namespace.has(name) and (system or not is_system_group(name))
        )

    @checked
    async def group_settings(self, group: str) -> dict[str, GroupSettings]:
        """Return the settings of a group by broker name. Raises GroupNotFound and other ClientErrors."""
        found = await self._known_group(self._namespace.checked_group(group), await self._masters())
        return {
            name: GroupSettings(
                group=self._namespace.unwrap(config.group_name),
                consume_enabled=config.consume_enable,
                broadcast_enabled=config.consume_broadcast_enable,
                ordered=config.consume_message_orderly,
                max_retries=config.retry_max_times,
                retry_queues=config.retry_queue_nums,
                consume_timeout_minutes=config.consume_timeout_minute,
                attributes=dict(config.attributes),
            )
            for name, config in sorted(found.items())
        }

    @checked
    async def group_topics(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets, without retry topics. Raises ClientError."""
        group = self._namespace.checked_group(group)
        header = QueryTopicsByConsumerRequestHeader(group=group)

        async def ask(address: str) -> list[str]:
            code = RequestCode.QUERY_TOPICS_BY_CONSUMER
            found = await self._body(address, code, header, f"topics of group {group}", TopicList.decode)
            return found.topic_list

        each = await self._of_each(await self._masters(), ask)
        topics = {topic for found in each.values() for topic in found}
        return sorted(
            self._namespace.unwrap(topic) for topic in topics if not topic.startswith(RETRY_TOPIC_PREFIX)
        )

    @checked
    async def topic_groups(self, topic: str) -> list[str]:
        """Return the groups that subscribe to a topic or have offsets of it. Raises ClientError."""
        topic = self._namespace.wrap(topic)
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        code, about = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, f"groups of topic {topic}"
        each = await asyncio.gather(
            *(
                self._body(address, code, header, about, GroupList.decode)
                for address in await self._addresses_of(topic)
            )
        )
        groups = {group for found in each for group in found.group_list}
        # Apache's broker lists the name of the topic as that of a group.
        if topic in groups and not await self._group_configs(topic, await self._masters()):
            groups.discard(topic)
        return sorted(self._namespace.unwrap(group) for group in groups)

    @checked
    async def set_consume_mode(
        self,
        group: str,
        topic: str,
        *,
        pop: bool,
        share_queues: int = 0,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> None:
        """Choose whether a group pops or pulls a topic, for consumers that let brokers divide the queues.

        `share_queues`: how many additional POP consumers may share a queue; 0: all of them. Raises
        ClientError.
        """
        body = SetMessageRequestModeRequestBody(
            consumer_group=self._namespace.checked_group(group),
            topic=self._namespace.wrap(topic),
            mode=MessageRequestMode.POP if pop else MessageRequestMode.PULL,
            pop_share_queue_num=share_queues,
        ).encode()
        masters = await self._masters(cluster, broker_name)
        code = RequestCode.SET_MESSAGE_REQUEST_MODE
        about = f"consume mode of group {group} in topic {topic}"
        await self._of_each(masters, lambda address: self._api.call(address, code, None, body, about=about))

    @checked
    async def set_group_readable(self, group: str, topic: str, readable: bool) -> None:
        """Allow or forbid a group to read a topic, on all masters. Raises ClientError."""
        header = UpdateGroupForbiddenRequestHeader(
            group=self._namespace.checked_group(group), topic=self._namespace.wrap(topic), readable=readable
        )
        about = f"permission of group {group} for topic {topic}"
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        await self._of_each(
            await self._masters(),
            lambda address: self._body(address, code, header, about, GroupForbidden.decode),
        )

    # --- requests ---

    async def _put_group(self, address: str, config: SubscriptionGroupConfig) -> None:
        """200: create or change a group at one master."""
        await self._api.call(
            address,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            config.encode(),
            about=f"group {config.group_name}",
        )

    async def _all_groups(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """201: return all groups of one master.

        A request for one group (352) would create it where brokers create groups on demand.
        """
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        found = await self._body(address, code, None, "list of groups", SubscriptionGroupWrapper.decode)
        return found.subscription_group_table

    async def _group_configs(
        self, group: str, masters: Mapping[str, str]
    ) -> dict[str, SubscriptionGroupConfig]:
        tables = await self._of_each(masters, self._all_groups)
        return {name: table[group] for name, table in tables.items() if group in table}

    async def _known_group(
        self, group: str, masters: Mapping[str, str]
    ) -> dict[str, SubscriptionGroupConfig]:
        """Return the group by broker name. Raises GroupNotFound if no master has it."""
        found = await self._group_configs(group, masters)
        if not found:
            raise GroupNotFound(
                f"group {group} is on none of {', '.join(sorted(masters))}: check the name, or create it"
            )
        return found

    async def _check_group(self, group: str, masters: Mapping[str, str]) -> None:
        """Raise GroupNotFound if no master has the group, as far as this client may know."""
        # Users may have rights for their group without the right to list all groups.
        with suppress(PermissionDenied):
            await self._known_group(group, masters)


def is_system_group(name: str) -> bool:
    """Whether a group belongs to brokers or tools."""
    return name in _SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIX)

"""Topics: codes 17, 18, 21, 215, 305, 351 and 513."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rmq_remoting.answers import Result
from rmq_remoting.bodies.route import TopicList
from rmq_remoting.bodies.static_topic import (
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from rmq_remoting.bodies.topic import CreateTopicListRequestBody, TopicConfig, TopicFilterType
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.deferred_answers import Persist, answer_when_persisted
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
)

from ...sending.message_types import MIXED
from ...topics.attributes import MESSAGE_TYPE, AttributeProblem, parse_attribute_changes
from ...topics.lookup import existing_topic
from ...topics.mapping_rules import MappingProblem
from ...topics.names import topic_name_problem
from ...topics.permissions import is_valid

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...settings.topics import TopicSettings
    from ...topics.deletion import TopicDeletion
    from ...topics.table import TopicTable

log = logging.getLogger("rmq.broker.processors")


class TopicAdminProcessor:
    """Creates, changes, deletes and shows topics.

    Changes are answered after `persist`, which waits for the disk and the name servers: a client that
    received the response finds the topic's route. For a static topic, `persist_mapping` also waits for the
    messages that were stored before its change. Deletions are answered when they are durable in the store,
    and after `persist_deletion`, which also waits for the offsets.
    """

    def __init__(
        self,
        topics: TopicTable,
        deletion: TopicDeletion,
        settings: TopicSettings,
        persist: Persist,
        persist_mapping: Persist,
        persist_deletion: Persist,
    ) -> None:
        self._topics = topics
        self._deletion = deletion
        self._settings = settings
        self._persist = persist
        self._persist_mapping = persist_mapping
        self._persist_deletion = persist_deletion

    def create(self, connection: Connection, request: RemotingCommand) -> Result:
        """17: create or update a topic."""
        header = CreateTopicRequestHeader.decode(request.ext_fields)
        log.info("topic created or updated topic=%s peer=%s", header.topic, connection.peer)
        try:
            config = _config_of(header)
            changes = parse_attribute_changes(header.attributes)
        except ValueError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"topic {header.topic}: {error}") from error
        return self._update(request, [(config, changes)])

    def create_all(self, connection: Connection, request: RemotingCommand) -> Result:
        """18: create or update several topics, all or none."""
        configs = CreateTopicListRequestBody.decode_request(request.body).topic_config_list
        log.info("topics created or updated count=%d peer=%s", len(configs), connection.peer)
        return self._update(request, [(config, config.attributes) for config in configs])

    def create_static(self, connection: Connection, request: RemotingCommand) -> Result:
        """513: create or update a static topic, with the logical queues that this broker has a part of."""
        header = CreateTopicRequestHeader.decode(request.ext_fields)
        mapping = TopicQueueMappingDetail.decode_request(request.body)
        log.info(
            "static topic created or updated topic=%s epoch=%d force=%s peer=%s",
            header.topic,
            mapping.epoch,
            header.force,
            connection.peer,
        )
        try:
            config = _config_of(header)
        except ValueError as error:
            raise CommandError(ResponseCode.INVALID_PARAMETER, f"topic {header.topic}: {error}") from error
        self._check(config, {})
        self._check_mapping(config, mapping)
        try:
            self._topics.update_static(config, mapping, force=header.force)
        except MappingProblem as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._persist_mapping)

    def delete(self, connection: Connection, request: RemotingCommand) -> Result:
        """215: delete a topic, its queues, its offsets and its POP retry topics."""
        topic = DeleteTopicRequestHeader.decode(request.ext_fields).topic
        if not topic.strip():
            raise CommandError(ResponseCode.INVALID_PARAMETER, "the topic's name is blank")
        self._refuse_system_topic(topic)
        log.info("topic deleted topic=%s peer=%s", topic, connection.peer)
        if self._settings.clear_retry_topic_when_delete_topic:
            removal = self._deletion.delete_with_retry_topics(topic)
        else:
            removal = self._deletion.delete([topic])

        async def persist() -> None:
            await asyncio.gather(removal, self._persist_deletion())

        return answer_when_persisted(request.response(ResponseCode.SUCCESS), persist)

    def get(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """351: one topic's configuration; with `lo=true` also the mapping of a static topic."""
        header = GetTopicConfigRequestHeader.decode(request.ext_fields)
        config = existing_topic(self._topics, header.topic)
        mapping = self._topics.mappings.get(header.topic) if header.logical else None
        body = TopicConfigAndQueueMapping(
            **dict(config), mapping_detail=None if mapping is None else mapping.detail
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """21: all topics' configuration. Read-only; runs in a pool because of large bodies."""
        body = TopicConfigAndMappingSerializeWrapper(
            data_version=self._topics.data_version,
            topic_config_table={config.topic_name: config for config in self._topics.configs()},
            mapping_data_version=self._topics.mappings.data_version,
            topic_queue_mapping_detail_map=self._topics.mappings.details(),
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def system_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """305: the names of the system topics."""
        body = TopicList(topic_list=sorted(self._topics.system_topics.names))
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    # --- internals ---

    def _update(
        self, request: RemotingCommand, wanted: list[tuple[TopicConfig, Mapping[str, str]]]
    ) -> Result:
        for config, changes in wanted:
            self._check(config, changes)
        try:
            self._topics.update_all(wanted)
        except AttributeProblem as error:
            raise CommandError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._persist)

    def _check(self, config: TopicConfig, changes: Mapping[str, str]) -> None:
        """Raise CommandError for an invalid topic configuration."""
        name = config.topic_name
        problem = topic_name_problem(name)
        if problem is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, problem)
        self._refuse_system_topic(name)
        numbers, known = (config.read_queue_nums, config.write_queue_nums), self._topics.get(name)
        most = self._settings.max_topic_queue_nums
        if known is not None:
            most = max(most, known.read_queue_nums, known.write_queue_nums)
        if not all(0 <= number <= most for number in numbers):
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"topic {name}: {numbers[0]} read and {numbers[1]} write queues; each number must be between "
                f"0 and {most} (maxTopicQueueNums)",
            )
        mapping = self._topics.mappings.get(name)
        if mapping is not None:
            _check_has_queues(config, mapping.detail)
        if not is_valid(config.perm):
            remark = f"topic {name}: perm {config.perm} is invalid; 6 is read and write, 4 read, 2 write"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)
        is_mixed = changes.get(f"+{MESSAGE_TYPE}") == MIXED
        if is_mixed and not self._settings.enable_mixed_message_type:
            remark = f"topic {name}: {MESSAGE_TYPE}={MIXED} is not supported without enableMixedMessageType"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)

    def _check_mapping(self, config: TopicConfig, mapping: TopicQueueMappingDetail) -> None:
        """Raise CommandError for a mapping with too many queues, or with queues that the topic lacks."""
        most = self._settings.max_topic_queue_nums
        known = self._topics.mappings.get(config.topic_name)
        if known is not None:
            most = max(most, known.detail.total_queues)
        if not 0 <= mapping.total_queues <= most:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"topic {config.topic_name}: {mapping.total_queues} logical queues; the number must be "
                f"between 0 and {most} (maxTopicQueueNums)",
            )
        _check_has_queues(config, mapping)

    def _refuse_system_topic(self, name: str) -> None:
        if self._settings.validate_system_topic_when_update_topic and name in self._topics.system_topics:
            remark = f"{name} is a system topic: it cannot be created, changed or deleted"
            raise CommandError(ResponseCode.INVALID_PARAMETER, remark)


def _check_has_queues(config: TopicConfig, mapping: TopicQueueMappingDetail) -> None:
    """Raise CommandError if a mapping has queues of this broker that the topic does not have."""
    for logical_id, items in mapping.hosted_queues.items():
        for item in items:
            if item.broker_name != mapping.broker_name:
                continue
            leads = item is items[-1]
            queues = min(config.read_queue_nums, config.write_queue_nums) if leads else config.read_queue_nums
            if item.queue_id >= queues:
                raise CommandError(
                    ResponseCode.INVALID_PARAMETER,
                    f"topic {config.topic_name}: logical queue {logical_id} is mapped to queue "
                    f"{item.queue_id} of this broker, so the topic needs more than "
                    f"{config.read_queue_nums} read and {config.write_queue_nums} write queues",
                )


def _config_of(header: CreateTopicRequestHeader) -> TopicConfig:
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        order=header.order,
        topic_filter_type=TopicFilterType(header.topic_filter_type),
        topic_sys_flag=header.topic_sys_flag or 0,
    )

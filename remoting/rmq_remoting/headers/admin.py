"""Headers of the administration of a broker (codes 26, 315, 354, 355, 370, 902, 903)."""

from __future__ import annotations

from ..integers import Int64
from .base import Header
from .rpc import TopicHeader


class GetBrokerConfigResponseHeader(Header):
    """26; the body is the settings as properties, `version` the JSON of a DataVersion."""

    version: str


class ViewBrokerStatsDataRequestHeader(Header):
    """315; the body of the response is a BrokerStatsData."""

    stats_key: str
    stats_name: str


class RecallMessageRequestHeader(TopicHeader):
    """370: recalls a delayed message that has not been delivered yet."""

    producer_group: str | None = None
    recall_handle: str
    topic: str


class RecallMessageResponseHeader(Header):
    """The unique key of the message."""

    msg_id: str


class AddBrokerRequestHeader(Header):
    """902, to a container of several brokers: start another one."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(Header):
    """903, to a container of several brokers: stop one."""

    broker_cluster_name: str
    broker_id: Int64
    broker_name: str


class CheckRocksdbCqWriteProgressRequestHeader(Header):
    """354: compares consume queues in RocksDB with those in files."""

    check_store_time: Int64 = 0
    topic: str


class ExportRocksDBConfigToJsonRequestHeader(Header):
    """355."""

    config_type: str

"""A broker's metrics as Prometheus reads them: Apache's names and labels, and those of the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    pull,
    pulled,
    request,
    send,
    sent,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.pop_requests import pop
from tests.support.raw_client import raw_client
from tests.support.waiting import until

_COMMON = {"cluster", "node_type", "node_id"}
_STORE = {"storage_type", "storage_medium"}
_OUT = {"topic", "consumer_group", "is_retry", "is_system"}
_IN = {"topic", "message_type", "is_system"}
# Apache RocketMQ 5.3.3, BrokerMetricsConstant, DefaultStoreMetricsConstant: name of the samples, own labels.
_APACHE = {
    "rocketmq_broker_permission": set(),
    "rocketmq_topic_number": set(),
    "rocketmq_consumer_group_number": set(),
    "rocketmq_processor_watermark": {"processor"},
    "rocketmq_producer_connections": {"language", "version", "protocol_type"},
    "rocketmq_consumer_connections": {
        "consumer_group",
        "language",
        "version",
        "consume_mode",
        "protocol_type",
        "is_system",
    },
    "rocketmq_rpc_latency_milliseconds_bucket": {
        "request_code",
        "response_code",
        "is_long_polling",
        "result",
        "protocol_type",
        "le",
    },
    "rocketmq_messages_in_total": _IN,
    "rocketmq_throughput_in_total": _IN,
    "rocketmq_message_size_bucket": _IN | {"le"},
    "rocketmq_messages_out_total": _OUT,
    "rocketmq_throughput_out_total": _OUT,
    "rocketmq_consumer_lag_messages": _OUT,
    "rocketmq_consumer_inflight_messages": _OUT,
    "rocketmq_consumer_ready_messages": _OUT,
    "rocketmq_storage_size_bytes": _STORE,
    "rocketmq_storage_flush_behind_bytes": _STORE,
    "rocketmq_storage_dispatch_behind_bytes": _STORE,
    "rocketmq_storage_message_reserve_time_milliseconds": _STORE,
}
_OWN = {
    "rmq_store_refuses_writes": set(),
    "rmq_store_puts_failed_total": set(),
    "rmq_store_queue_unwritten_bytes": set(),
    "rmq_store_flush_waiting": set(),
    "rmq_store_flush_groups_total": set(),
    "rmq_store_flush_answered_total": set(),
    "rmq_store_flush_timeouts_total": set(),
    "rmq_store_flush_failures_total": set(),
    "rmq_store_cold_reads_total": set(),
    "rmq_store_cold_read_bytes_total": set(),
    "rmq_cache_entries": {"cache"},
    "rmq_cache_bytes": {"cache"},
    "rmq_cache_max_entries": {"cache"},
    "rmq_cache_max_bytes": {"cache"},
    "rmq_cache_insertions_total": {"cache"},
    "rmq_cache_evictions_total": {"cache"},
    "rmq_store_index_state": {"state"},
    "rmq_store_index_behind_bytes": set(),
    "rmq_store_index_failing": set(),
    "rmq_store_index_files": set(),
    "rmq_store_index_entries": set(),
    "rmq_store_index_size_bytes": set(),
    "rmq_store_disk_used_ratio": {"files"},
    "rmq_store_disk_available_bytes": {"files"},
    "rmq_store_disk_level": set(),
    "rmq_store_disk_check_failures_total": set(),
    "rmq_store_files_deleted_total": {"files"},
    "rmq_store_log_freed_bytes_total": set(),
    "rmq_store_cleaning_failures_total": set(),
    "rmq_store_cleaning_last_round_timestamp_seconds": set(),
}
_PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_start_time_seconds",
    "python_gc_collections_total",
    "rmq_event_loop_lag_seconds_bucket",
    "rmq_gc_pause_seconds_bucket",
    "rmq_task_running",
    "rmq_connections_open",
    "rmq_tier_waiting",
    "rmq_tier_rejected_total",
    "rmq_requests_total",
    "rmq_held_pulls",
    "rmq_messages_filtered_total",
    "rmq_scrape_failures_total",
}


# No request of Apache's.
_NO_CODE = 29_999


class _Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        families: list[Metric] = list(text_string_to_metric_families(text))
        self.samples = [sample for family in families for sample in family.samples]
        self.names = {sample.name for sample in self.samples}
        # One block for each name, or Prometheus refuses the whole page.
        types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
        assert len(types) == len(set(types))

    def value(self, name: str, **labels: str) -> float:
        """The value of the one sample of that name with at least these labels."""
        (found,) = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return float(found)


async def _scrape(broker: RunningBroker) -> _Scrape:
    address = broker.broker.metrics.address
    assert address is not None
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK")
    return _Scrape(body.decode())


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RunningBroker]:
    keys = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0, "metricsLabel": "zone:z1,team:a"}
    async with running_broker(tmp_path, **keys) as running:
        yield running


async def test_names_and_labels_are_apaches(broker: RunningBroker) -> None:
    async with broker.client() as client, broker.client() as member:
        await ask_among_notifications(member, heartbeat("c1", "CG", {"T": "*"}, producer_groups=["PG"]))
        sent(await client.ask(send("T", b"x" * 100)))
        await client.ask(pull("T", "CG", commit=0))
        await until(lambda: broker.services.storage.cleaner.statistics.last_round_ms)

        scrape = await _scrape(broker)

    common = _COMMON | {"zone", "team"}
    for name, own in (_APACHE | _OWN).items():
        labels = [set(sample.labels) for sample in scrape.samples if sample.name == name]
        assert labels, f"{name} is missing"
        assert all(found == own | common for found in labels), f"{name}: {labels[0]}"
    missing = _PROCESS - scrape.names
    assert not missing
    assert scrape.value("rmq_scrape_failures_total") == 0
    for sample in scrape.samples:
        assert sample.labels["node_type"] == "broker"
        assert sample.labels["node_id"] == "broker-a"
        assert sample.labels["cluster"] == "DefaultCluster"


async def test_messages_are_counted_in_and_out(broker: RunningBroker) -> None:
    async with broker.client() as client, raw_client(broker.fast_port) as fast:
        sizes = []
        for body in (b"x" * 100, b"y" * 2000):
            sent(await client.ask(send("T", body)))
        sent(await fast.ask(send("T", b"fast")))
        messages = pulled(await client.ask(pull("T", "CG", commit=0)))
        sizes = [message.store_size for message in messages]
        await client.ask(pull("T", "CG", offset=2, commit=2))

        scrape = await _scrape(broker)

    kind = {"topic": "T", "message_type": "normal", "is_system": "false"}
    assert scrape.value("rocketmq_messages_in_total", **kind) == 3
    assert scrape.value("rocketmq_throughput_in_total", **kind) == sum(sizes)
    assert scrape.value("rocketmq_message_size_count", **kind) == 3
    assert scrape.value("rocketmq_message_size_sum", **kind) == sum(sizes)
    assert scrape.value("rocketmq_message_size_bucket", **kind, le="1024.0") == 2
    reader = {"topic": "T", "consumer_group": "CG", "is_retry": "false", "is_system": "false"}
    assert scrape.value("rocketmq_messages_out_total", **reader) == 4
    assert scrape.value("rocketmq_throughput_out_total", **reader) == sum(sizes) + sizes[2]
    assert scrape.value("rocketmq_consumer_lag_messages", **reader) == 1
    assert scrape.value("rocketmq_storage_size_bytes") == sum(sizes)
    # Both ports together.
    answered = {"request_code": "send_message_v2", "response_code": "success", "result": "success"}
    assert scrape.value("rocketmq_rpc_latency_milliseconds_count", **answered) == 3
    assert scrape.value("rmq_requests_total", request_code="send_message_v2", response_code="success") == 3
    assert scrape.value("rmq_connections_open", listener="main") == 1
    assert scrape.value("rmq_connections_open", listener="fast") == 1


async def test_what_filters_keep_back_is_counted(broker: RunningBroker) -> None:
    async with broker.client() as client:
        for tag in "abbbab":
            sent(await client.ask(send("T", properties={"TAGS": tag})))
        for offset in (0, 1, 5):
            await client.ask(pull("T", "CG", offset=offset, subscription="a"))
        await client.ask(pull("T", "CG", offset=0))
        await client.ask(pop("T", expression="b", expression_type="TAG"))

        scrape = await _scrape(broker)

    reader = {"topic": "T", "consumer_group": "CG", "is_retry": "false", "is_system": "false"}
    # Four, four and one by the pulls, two by the pop.
    assert scrape.value("rmq_messages_filtered_total", **reader) == 11
    assert scrape.value("rocketmq_messages_out_total", **reader) == 2 + 1 + 6 + 4


async def test_who_waits_for_the_disk_is_counted(tmp_path: Path) -> None:
    keys = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0, "flushDiskType": "SYNC_FLUSH"}
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        for _ in range(3):
            sent(await client.ask(send("T")))
        scrape = await _scrape(broker)
    assert scrape.value("rmq_store_flush_answered_total") == 3
    assert 1 <= scrape.value("rmq_store_flush_groups_total") <= 3
    assert scrape.value("rmq_store_flush_waiting") == 0
    assert scrape.value("rocketmq_storage_flush_behind_bytes") == 0
    assert scrape.value("rmq_store_refuses_writes") == 0


async def test_caches_show_their_entries(broker: RunningBroker) -> None:
    async with broker.client() as client:
        sent(await client.ask(send("T")))
        for offset in (0, 1):
            await client.ask(pull("T", offset=offset, subscription="a"))
        scrape = await _scrape(broker)
    assert scrape.value("rmq_cache_entries", cache="pull_headers") == 1
    assert scrape.value("rmq_cache_entries", cache="parsed_subscriptions") == 1
    assert scrape.value("rmq_cache_evictions_total", cache="parsed_subscriptions") == 0


async def test_clients_are_counted_by_what_they_are(broker: RunningBroker) -> None:
    async with broker.client() as first, broker.client() as second:
        await ask_among_notifications(first, heartbeat("c1", "CG", {"T": "*"}, producer_groups=["PG"]))
        pulling = heartbeat("c2", "PullCG", {"T": "*"}, consume_type=ConsumeType.CONSUME_ACTIVELY)
        old = heartbeat("c3", None, producer_groups=["PG"])
        old.version, old.language = 337, 9
        await ask_among_notifications(second, pulling)
        await ask_among_notifications(second, old)

        scrape = await _scrape(broker)

    push = {"consumer_group": "CG", "consume_mode": "push", "language": "python", "version": "v5_3_3"}
    assert scrape.value("rocketmq_consumer_connections", **push, protocol_type="remoting") == 1
    assert scrape.value("rocketmq_consumer_connections", consumer_group="PullCG", consume_mode="pull") == 1
    assert scrape.value("rocketmq_producer_connections", language="python", version="v5_3_3") == 1
    assert scrape.value("rocketmq_producer_connections", language="go", version="v4_6_2") == 1


async def test_what_waits_and_what_is_refused_shows(broker: RunningBroker) -> None:
    async with broker.client() as client:
        await client.ask(create_topic("T"))
        client.send(pull("T", suspend_ms=20_000))
        await until(lambda: broker.held_pulls.count == 1)
        async with broker.client() as other:
            await other.ask(request(_NO_CODE))
            await other.ask(send("No topic!"))

        scrape = await _scrape(broker)

        sent(await client.ask(send("T", queue_id=1)))
        client.send(pull("T", queue_id=1))
        assert len(pulled(await client.receive())) == 1
        async with broker.client() as other:
            sent(await other.ask(send("T")))
        assert len(pulled(await client.receive())) == 1
        later = await _scrape(broker)

    for is_long_polling in ("true", "false"):
        answered = {"request_code": "pull_message", "is_long_polling": is_long_polling}
        assert later.value("rocketmq_rpc_latency_milliseconds_count", **answered) == 1
    assert scrape.value("rmq_held_pulls") == 1
    assert scrape.value("rmq_tier_held", tier="pull") == 1
    assert scrape.value("rmq_tier_waiting", tier="pull") == 0
    assert scrape.value("rmq_held_pulls_refused_total") == 0
    assert scrape.value("rocketmq_processor_watermark", processor="pull") == 0
    assert scrape.value("rmq_requests_unsupported_total") == 1
    refused = {"request_code": "send_message_v2", "response_code": "invalid_parameter"}
    assert scrape.value("rmq_requests_total", **refused) == 1
    assert scrape.value("rocketmq_broker_permission") == 6
    assert scrape.value("rocketmq_topic_number") == len(broker.topics)


async def test_a_chosen_metrics_port_that_is_taken_refuses_the_start(
    tmp_path: Path, broker: RunningBroker
) -> None:
    assert broker.broker.metrics.address is not None
    keys = {"metricsExporterType": "PROM", "metricsPromExporterPort": broker.broker.metrics.address[1]}
    with pytest.raises(StartError, match="Set metricsPromExporterPort to a free port"):
        async with running_broker(tmp_path / "second", **keys):
            pass

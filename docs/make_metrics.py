"""Write docs/metrics.md from the metrics that the daemons declare: `python docs/make_metrics.py`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

from rmq_broker.build import build_broker
from rmq_broker.controller.metrics import ControllerCollector
from rmq_broker.settings.broker import BrokerSettings, known_keys
from rmq_broker.shards.joined_metrics import shard_families
from rmq_namesrv.config import NamesrvSettings
from rmq_namesrv.namesrv import Namesrv
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_proxy.proxy import Proxy
from rmq_remoting.daemon.configuration import Override, load
from rmq_remoting.daemon.exposition import PAUSE, Collector, Family
from rmq_remoting.daemon.tasks import TaskSupervisor

if TYPE_CHECKING:
    from rmq_broker.controller.member import GroupMember

_PAGE: Final = Path(__file__).with_name("metrics.md")
_HEAD: Final = """\
# Metrics

All daemons serve these metrics for Prometheus at `http://HOST:5557/metrics` (`metricsPromExporterPort`).
The first word of a name says where the name comes from:

- `rocketmq_`: Apache RocketMQ 5.3.3, with its labels.
- `process_` and `python_`: Prometheus' Python client.
- `rmq_`: this project.

All samples of a broker or a proxy have the labels `cluster`, `node_type` and `node_id`. All samples of a
name server have the label `node_type`. `metricsLabel` adds more. `rmq_scrape_failures_total` counts
collectors that failed. A histogram has the samples `_bucket`, `_sum` and `_count`.

[Deployment](deployment.md#prometheus-and-grafana) has alerts and a dashboard for these metrics. Streams of
Spark have [metrics of their own](spark/reference.md#metrics).

This page is written by `python docs/make_metrics.py`.
"""
_PROXY: Final = ProxyDaemonSettings.model_validate({"namesrvAddr": "127.0.0.1:9876"})
# Heading and daemons of each collector, in the order of the page.
_SECTIONS: Final = {
    "BrokerCollector": ("Messages, groups and clients", "broker"),
    "StoreCollector": ("Store", "broker"),
    "DeliveryCollector": ("Delayed messages and redelivery", "broker"),
    "ColdReadCollector": ("Flow control of cold reads", "broker"),
    "TimerCollector": ("Timed messages", "broker"),
    "PopCollector": ("POP", "broker"),
    "TransactionCollector": ("Transactions", "broker"),
    "RegistrationCollector": ("Registration with name servers", "broker"),
    "ReplicationCollector": ("Replication", "broker"),
    "MetadataCollector": ("Metadata of a replica", "broker that is a replica"),
    "ActingCollector": ("Acting master", "broker that is a replica"),
    "ControllerCollector": ("Controller", "broker with `enableControllerMode`"),
    "ProxyCollector": ("gRPC", "proxy, broker with `grpcServerPort`"),
    "SessionCollector": ("Remoting through a proxy", "proxy"),
    "ReplayProtection": ("Recorded requests", "broker with `signatureReplayWindowSeconds`"),
    "Shards": ("Shards", "supervisor of `rmq-broker --shards`"),
    "NamesrvCollector": ("Name server", "name server"),
    "RemotingCollector": ("Requests and connections", "broker, name server, proxy"),
    "TlsCollector": ("Certificates", "broker, name server, proxy"),
    "CacheCollector": ("Caches", "broker, name server"),
    "LoopLagProbe": ("Event loop", "broker, name server, proxy, supervisor of shards"),
    "GarbageCollectionProbe": ("Garbage collection", "broker, name server, proxy, supervisor of shards"),
    "ProcessCollector": ("Process", "broker, name server, proxy, supervisor of shards"),
    "TaskCollector": ("Background tasks", "broker, name server, proxy, supervisor of shards"),
}


def page() -> str:
    """Return the whole page. Raises LookupError for a collector without a heading."""
    families: dict[str, dict[str, Family]] = {name: {} for name in _SECTIONS}
    for collector in asyncio.run(_collectors()):
        name = type(collector).__name__
        if name not in families:
            raise LookupError(f"the collector {name} has no heading: add one to _SECTIONS in {__file__}")
        for family in collector.collect():
            if family is not PAUSE:
                families[name].setdefault(family.name, family)
    return _HEAD + "".join(
        f"\n## {title}\n\nServed by: {daemons}.\n\n{_table(families[name].values())}"
        for name, (title, daemons) in _SECTIONS.items()
    )


class Shards:
    """What the supervisor of shards adds for each of them."""

    def collect(self) -> Iterable[Family]:
        """Return the metrics."""
        return shard_families(is_up=True, restarts=0, hangs=0, pending_changes=0)


async def _collectors() -> Sequence[Collector]:
    """Return the collectors of a master, a replica, a proxy, a name server and a supervisor of shards."""
    namesrv = Namesrv(load(NamesrvSettings)).collectors()
    proxy = Proxy(_PROXY, TaskSupervisor(lambda _name, _error: None)).metrics.registry.collectors()
    master = await _of_broker({"authenticationEnabled": "true", "signatureReplayWindowSeconds": "30"})
    replica = await _of_broker({"brokerRole": "SLAVE", "brokerId": "1"})
    return [*master, *replica, _controlled(), *proxy, *namesrv, Shards()]


def _controlled() -> ControllerCollector:
    """Return the collector of a broker that knows no controller yet."""
    member = SimpleNamespace(role=None, problem="", role_changes=0, change_seconds=0.0)
    return ControllerCollector(cast("GroupMember", member))


async def _of_broker(settings: dict[str, str]) -> Sequence[Collector]:
    """Return the collectors of a broker that is not started."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"storePathRootDir": folder, "listenPort": "0", "bindAddress": "127.0.0.1", **settings}
        overrides = [Override(key, value) for key, value in given.items()]
        supervisor = TaskSupervisor(lambda _name, _error: None)
        broker = await build_broker(load(BrokerSettings, None, overrides, known_keys), supervisor)
        await broker.stop()  # frees the ports
        return broker.metrics.registry.collectors()


def _table(families: Iterable[Family]) -> str:
    head = "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
    return head + "".join(map(_row, families))


def _row(family: Family) -> str:
    labels = ", ".join(f"`{name}`" for name in family.label_names)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} |\n"


if __name__ == "__main__":
    _PAGE.write_text(page())

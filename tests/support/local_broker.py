"""A broker's services and processors without network and background tasks, in virtual time.

The broker's own build makes them. (A whole broker in this process: `brokers`; as a process: `own_servers`.)
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

from rmq_broker.build import build_processing
from rmq_broker.clients.producers import ProducerTable
from rmq_broker.delivery.delayed_messages import DelayedMessages
from rmq_broker.delivery.message_writer import MessageWriter
from rmq_broker.delivery.retries import Retries
from rmq_broker.network.address import BrokerAddress
from rmq_broker.network.tiers import Tiers
from rmq_broker.processors.build import Processors
from rmq_broker.services import Services, build_services
from rmq_broker.settings.broker import BrokerSettings, known_keys
from rmq_broker.statistics.broker_statistics import BrokerStatistics
from rmq_broker.store.api import RecordTemplate
from rmq_broker.timers.service import TimerService
from rmq_broker.transactions.service import TransactionService
from rmq_remoting.daemon.configuration import Configuration, Override, load
from rmq_remoting.java_hash import string_hash_code
from tests.support.clock import Clock
from tests.support.service_views import ServiceViews

_ADDRESS: Final = BrokerAddress("10.0.0.1", 10911, "10.0.0.1")
STORE_HOST: Final = _ADDRESS.store_host


class LocalBroker(ServiceViews):
    """The services and processors of a broker; tests call them. Created in a running loop.

    The store is open, the other services are not loaded. Time passes only on `clock`. `close` leaves the
    directory as after a kill.
    """

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        """Settings by Apache's keys; without more: small files in `folder`."""
        self.folder = folder
        self.clock = clock or Clock()
        self.configuration = _configuration(folder, keys)
        self.settings = self.configuration.settings
        self._tiers = Tiers.of(self.settings)
        self._services = build_services(self.settings, STORE_HOST, self._tiers.pull_cold, self.clock.clocks)
        self.store.open()

    def close(self) -> None:
        self.store.close()
        self._tiers.stop()

    # --- parts ---

    @property
    def services(self) -> Services:
        """The services, built by `build_services`."""
        return self._services

    @cached_property
    def processors(self) -> Processors:
        """The processors of all requests."""
        return build_processing(
            self.configuration, self.services, self._tiers, _ADDRESS, 0, self.clock.clocks
        ).processors

    @property
    def producers(self) -> ProducerTable:
        return self.services.clients.producers

    @property
    def statistics(self) -> BrokerStatistics:
        return self.services.statistics

    @property
    def writer(self) -> MessageWriter:
        return self.services.delivery.writer

    @property
    def retries(self) -> Retries:
        return self.services.delivery.retries

    @property
    def delayed(self) -> DelayedMessages:
        return self.services.delivery.delayed

    @property
    def timers(self) -> TimerService:
        return self.services.timers

    @property
    def transactions(self) -> TransactionService:
        return self.services.transactions

    # --- messages ---

    def put(
        self, count: int = 1, queue_id: int = 0, topic: str = "T", *, body: bytes | None = None, tag: str = ""
    ) -> None:
        """Store messages. Without `body`, a message's body is its number in the queue."""
        queue = self.store.queues.get_or_create(topic, queue_id)
        template = RecordTemplate(
            topic, queue_id, flag=0, sys_flag=0, reconsume_times=0, born_host_bytes=8, store_host=STORE_HOST
        )
        for _ in range(count):
            self.store.put(
                queue,
                template,
                b"%d" % queue.next_offset if body is None else body,
                b"TAGS\x01%b\x02" % tag.encode() if tag else b"",
                tags_code=string_hash_code(tag) if tag else 0,
                born_timestamp_ms=self.clock(),
                born_host=STORE_HOST,
            )


def _configuration(folder: Path, keys: dict[str, object]) -> Configuration[BrokerSettings]:
    chosen = {
        "brokerName": "broker-a",
        "storePathRootDir": folder,
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 20_000,
        **keys,
    }
    overrides = [Override(key, str(value)) for key, value in chosen.items()]
    return load(BrokerSettings, None, overrides, known_keys)

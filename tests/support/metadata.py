"""The metadata of a replica in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmq_broker.replication.metadata.build import MetadataDependencies, MetadataReplication
from rmq_broker.topics.deletion import TopicDeletion
from tests.support.brokers import RunningBroker


def metadata_of(replica: RunningBroker) -> MetadataReplication:
    """Build the replication of a running replica's metadata, from the master that it follows."""
    services, broker = replica.services, replica.broker

    def master_address() -> str | None:
        known = broker.replication.lookup.known
        return None if known is None else known.clients or None

    dependencies = MetadataDependencies(
        topics=services.topics.table,
        deletion=TopicDeletion(
            services.topics.table, services.offsets.table, services.storage.store, services.statistics
        ),
        groups=services.groups.table,
        consumers=services.clients.consumers,
        offsets=services.offsets.table,
        delivery=services.delivery,
        timers=services.timers,
        pops=services.pops,
        store=services.storage.store,
        config_dir=replica.configuration.settings.config_dir,
    )
    return MetadataReplication(
        dependencies, broker.registrar.client, master_address, lambda: time.monotonic_ns() // 1_000_000
    )


@asynccontextmanager
async def following_metadata(replica: RunningBroker) -> AsyncIterator[MetadataReplication]:
    """Follow the master's metadata until the end of the block; the files are written then."""
    metadata = metadata_of(replica)
    metadata.load()
    task = asyncio.get_running_loop().create_task(metadata.sync.run())
    try:
        yield metadata
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await metadata.close()

"""The build of a broker: the address first, then each part with all that it needs, from the bottom up.

ports and address          network/address.py
tiers                      network/tiers.py
services                   services.py, and `service.py` in the folder of each domain
registrar                  registration/registrar.py
replication                replication/service.py, and with a controller replication/controlled.py
processors by family       processors/build.py
two dispatchers            processors/processor_table.py
master's services          master_services.py, acting/service.py
listeners, metrics         network/listeners.py, monitoring/build.py
gRPC face                  local_proxy.py
Broker                     broker.py: the order of start and stop
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tls_contexts import client_tls
from rmq_remoting.signing import RequestSigner

from .acting.hand_back import HandBack, Progress
from .acting.service import ActingService
from .acting.smallest_broker import SmallestBroker
from .broker import Broker
from .clock import Clocks, system_clocks
from .master_services import MasterServices
from .monitoring.build import build_metrics, build_runtime_info
from .network.address import BoundPorts, BrokerAddress, bind_ports, resolve_address
from .network.listeners import Listeners
from .network.tiers import Tiers
from .processors.build import Processors, build_processors
from .processors.processor_table import build_dispatchers
from .registration.announcements import BrokerIdentity
from .registration.registrar import Registrar
from .replication.metadata.build import MetadataDependencies
from .replication.service import ReplicationService
from .services import Services, build_services
from .static_topics.cleaning import MappingCleaner
from .topics.deletion import TopicDeletion

if TYPE_CHECKING:
    from rmq_remoting.daemon.access.tables import AccessTables
    from rmq_remoting.daemon.configuration import Configuration
    from rmq_remoting.daemon.tasks import TaskSupervisor
    from rmq_remoting.dispatch import Dispatcher
    from rmq_remoting.memory_transport import Link

    from .controller.member import GroupMember
    from .local_proxy import LocalProxy
    from .monitoring.runtime_info import RuntimeInfo
    from .settings.broker import BrokerSettings


async def build_broker(
    configuration: Configuration[BrokerSettings],
    supervisor: TaskSupervisor,
    clocks: Clocks | None = None,
    access_tables: AccessTables | None = None,
    ports: BoundPorts | None = None,
    member: GroupMember | None = None,
) -> Broker:
    """Take the ports and build a broker on them; `start` opens its store. Raises StartError.

    Its background tasks belong to `supervisor`. Without `clocks` it has the clocks of this machine. Users and
    rules are in `access_tables` if a name server in this process has them. `ports`: those that are taken
    already. `member`: the broker's place in a group with a controller.
    """
    ports = ports or bind_ports(configuration.settings)
    try:
        address = await resolve_address(configuration.settings, ports.main_port)
        return _build(
            configuration, supervisor, ports, address, clocks or system_clocks(), access_tables, member
        )
    except BaseException:
        ports.close()
        raise


async def build_dispatcher(configuration: Configuration[BrokerSettings]) -> Dispatcher:
    """Build the main port's dispatcher of a broker with these settings; nothing is opened or bound."""
    settings = configuration.settings
    address = BrokerAddress("127.0.0.1", 0, "127.0.0.1")
    tiers, clocks = Tiers.of(settings), system_clocks()
    services = build_services(settings, address.store_host, tiers.pull_cold, clocks)
    processors = build_processing(configuration, services, tiers, address, 0, clocks).processors
    tiers.stop()
    return build_dispatchers(processors, tiers, None, None).main


def _build(
    configuration: Configuration[BrokerSettings],
    supervisor: TaskSupervisor,
    ports: BoundPorts,
    address: BrokerAddress,
    clocks: Clocks,
    access_tables: AccessTables | None,
    member: GroupMember | None,
) -> Broker:
    settings = configuration.settings
    tiers = Tiers.of(settings)
    services = build_services(settings, address.store_host, tiers.pull_cold, clocks, access_tables)
    configuration.on_change(services.topics.settings_changed)
    processing = build_processing(
        configuration, services, tiers, address, ports.replication_port, clocks, member
    )
    registrar, replication, processors = processing.registrar, processing.replication, processing.processors
    dispatchers = build_dispatchers(processors, tiers, services.access.guard, services.replays)
    listeners = Listeners(
        settings,
        ports,
        dispatchers.main,
        dispatchers.fast,
        replication.server,
        services.connection_closed,
    )
    processing.runtime_info.oldest_wait_seconds = listeners.oldest_wait_seconds
    local_proxy = _local_proxy(settings, address, services.access.tables, listeners.main.link)
    metrics = build_metrics(
        settings,
        supervisor,
        services,
        tiers,
        listeners,
        registrar,
        replication,
        processing.smallest,
        processors.caches,
        clocks,
        local_proxy,
    )
    cleaner = MappingCleaner(
        settings,
        services.topics.table,
        services.storage.store,
        processors.other_brokers,
        clocks.now_seconds,
    )
    master_services = MasterServices(services, cleaner, supervisor)
    acting = ActingService(
        settings,
        processing.smallest,
        master_services,
        registrar,
        replication,
        _hand_back(services, registrar),
        clocks.now_ms,
    )
    return Broker(
        settings,
        supervisor,
        address,
        services,
        master_services,
        acting,
        registrar,
        replication,
        listeners,
        metrics,
        local_proxy,
    )


def _local_proxy(
    settings: BrokerSettings, address: BrokerAddress, tables: AccessTables, link: Link
) -> LocalProxy | None:
    """Return the gRPC face, None for a broker without one. Raises StartError."""
    if not settings.grpc_server_port:
        return None
    try:
        # Imported only by a broker that serves gRPC, since it needs further packages.
        from .local_proxy import LocalProxy  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise StartError(
            f"the package {error.name} is not installed: grpcServerPort needs the extra `proxy`, "
            "pip install 'rmq[proxy]'"
        ) from error

    return LocalProxy(settings, address, tables, link)


@dataclass(frozen=True, slots=True)
class Processing:
    """The processors of all requests, and the parts that reach other brokers."""

    registrar: Registrar
    replication: ReplicationService
    smallest: SmallestBroker
    processors: Processors
    runtime_info: RuntimeInfo


def build_processing(
    configuration: Configuration[BrokerSettings],
    services: Services,
    tiers: Tiers,
    address: BrokerAddress,
    replication_port: int,
    clocks: Clocks,
    member: GroupMember | None = None,
) -> Processing:
    """Build the processors, replication, and the registrar, whose connections others share."""
    settings = configuration.settings
    ha_address = f"{settings.broker_ip2}:{replication_port}"
    identity = BrokerIdentity(
        settings.broker_cluster_name,
        settings.broker_name,
        settings.broker_id,
        str(address),
        ha_address,
        is_elected=member is not None,
    )
    keys = settings.own_keys
    signer = None if keys is None else RequestSigner(keys.access_key, keys.secret_key)
    registrar = Registrar(
        identity, settings, settings, services.topics.table, signer=signer, tls=client_tls(settings)
    )
    smallest = SmallestBroker(
        settings.broker_id, is_enabled=settings.enable_slave_acting_master, clock=time.monotonic
    )
    replication = ReplicationService(
        settings,
        services.storage.store,
        registrar,
        _metadata(settings, services),
        clocks,
        lambda: smallest.keeps_own_progress,
        member,
    )
    runtime_info = build_runtime_info(settings, services, tiers)
    processors = build_processors(
        configuration, services, address, registrar, replication, smallest, runtime_info, clocks
    )
    return Processing(registrar, replication, smallest, processors, runtime_info)


def _hand_back(services: Services, registrar: Registrar) -> HandBack:
    identity = registrar.announcements.identity
    progress = Progress(
        services.topics.table,
        services.groups.table,
        services.offsets.table,
        services.delivery,
        services.timers,
        services.pops,
        services.storage.store,
    )
    return HandBack(progress, registrar.client, identity.address, identity.ha_address)


def _metadata(settings: BrokerSettings, services: Services) -> MetadataDependencies:
    topics, offsets, store = services.topics.table, services.offsets.table, services.storage.store
    return MetadataDependencies(
        topics=topics,
        deletion=TopicDeletion(topics, offsets, store, services.statistics),
        groups=services.groups.table,
        consumers=services.clients.consumers,
        offsets=offsets,
        delivery=services.delivery,
        timers=services.timers,
        pops=services.pops,
        store=store,
        config_dir=settings.config_dir,
    )

"""A name server and a broker in one process, for tests and laptops.

The only module of the broker that imports the name server.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq_namesrv.config import NamesrvSettings
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.daemon.access.settings import AccessSettings
from rmq_remoting.daemon.configuration import Configuration, Override, load
from rmq_remoting.daemon.ready import Ready
from rmq_remoting.daemon.settings import SettingsGroup, fields_by_key, to_text
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.daemon.tls_settings import TlsSettings

from .build import build_broker
from .grpc_port import choose_grpc_port

if TYPE_CHECKING:
    from .broker import Broker
    from .settings.broker import BrokerSettings

log = logging.getLogger("rmq.broker")

DEFAULT_NAMESRV_PORT: Final = 9876
_THIS_MACHINE: Final = "127.0.0.1"


class Standalone:
    """A broker and the name server that it registers with. The name server serves already."""

    def __init__(self, namesrv: Namesrv, broker: Broker) -> None:
        self.namesrv = namesrv
        self.broker = broker

    async def start(self) -> Ready:
        """Start the broker; return the facts to announce. Raises StartError."""
        settings = self.broker.settings
        if settings.bind_address == _THIS_MACHINE:
            log.info(
                "standalone: only this machine can connect bindAddress=%s; with --set bindAddress=0.0.0.0 "
                "others can, too",
                settings.bind_address,
            )
        log.info("standalone: messages are in store=%s", settings.store_path_root_dir.absolute())
        return await self.broker.start()

    async def stop(self) -> None:
        """Stop the broker, then the name server."""
        await self.broker.stop()
        await self.namesrv.stop()


async def build_standalone(
    configuration: Configuration[BrokerSettings],
    supervisor: TaskSupervisor,
    namesrv_port: int = DEFAULT_NAMESRV_PORT,
) -> Standalone:
    """Start a name server and build a broker that knows its address. Raises StartError.

    Name servers that the settings name are registered with, too.
    """
    settings = configuration.settings
    choose_grpc_port(settings)
    namesrv = Namesrv(
        _namesrv_configuration(settings, namesrv_port), supervisor, port_option="--namesrv-port"
    )
    try:
        await namesrv.start()
        own = namesrv.address
        others = [address for address in settings.name_server_addresses if address != own]
        settings.namesrv_addr = ";".join([own, *others])
        broker = await build_broker(configuration, supervisor, access_tables=namesrv.access.tables)
        return Standalone(namesrv, broker)
    except BaseException:
        await namesrv.stop()
        raise


def _namesrv_configuration(settings: BrokerSettings, port: int) -> Configuration[NamesrvSettings]:
    overrides = {
        "listenPort": str(port),
        "bindAddress": settings.bind_address,
        "kvConfigPath": str(settings.store_path_root_dir / "namesrv" / "kvConfig.json"),
        # The metrics of the process are served by the broker's endpoint.
        "metricsExporterType": "DISABLE",
        "adminAllowlist": settings.admin_allowlist,
        # Both daemons have the same users and rules.
        "authConfigPath": str(settings.config_dir),
        **_same(settings, AccessSettings),
        **_same(settings, TlsSettings),
    }
    return load(NamesrvSettings, overrides=[Override(key, value) for key, value in overrides.items()])


def _same(settings: BrokerSettings, group: type[SettingsGroup]) -> dict[str, str]:
    """Return the broker's settings of a group: the name server has the same."""
    texts = {key: to_text(getattr(settings, name)) for key, name in fields_by_key(group).items()}
    return {key: text for key, text in texts.items() if text is not None}

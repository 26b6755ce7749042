"""A name server and a broker in one process: for tests and laptops.

The only place of the broker that knows the name server.
"""

from __future__ import annotations

from rmq_namesrv.config import NamesrvSettings
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.daemon.configuration import Configuration, Override, load
from rmq_remoting.daemon.tasks import TaskSupervisor

from .broker import Broker
from .settings.broker import BrokerSettings

DEFAULT_NAMESRV_PORT = 9876


class Standalone:
    """Both daemons, the name server started first and stopped last."""

    def __init__(
        self,
        configuration: Configuration[BrokerSettings],
        supervisor: TaskSupervisor,
        namesrv_port: int = DEFAULT_NAMESRV_PORT,
    ) -> None:
        self._settings = configuration.settings
        self.namesrv = Namesrv(_namesrv_configuration(self._settings, namesrv_port), supervisor)
        self.broker = Broker(configuration, supervisor)

    async def start(self) -> str:
        """Start both; the broker's ready line. Raises StartError."""
        await self.namesrv.start()
        own = f"127.0.0.1:{self.namesrv.port}"
        others = [address for address in self._settings.name_server_addresses if address != own]
        self._settings.namesrv_addr = ";".join([own, *others])
        return await self.broker.start()

    async def stop(self) -> None:
        """Stop both."""
        await self.broker.stop()
        await self.namesrv.stop()


def _namesrv_configuration(settings: BrokerSettings, port: int) -> Configuration[NamesrvSettings]:
    overrides = {
        "listenPort": str(port),
        "bindAddress": settings.bind_address,
        "kvConfigPath": str(settings.store_path_root_dir / "namesrv" / "kvConfig.json"),
        # The broker's own endpoint shows the process.
        "metricsExporterType": "DISABLE",
    }
    return load(NamesrvSettings, overrides=[Override(key, value) for key, value in overrides.items()])

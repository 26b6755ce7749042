"""Apache's proxy, which serves the 5.x clients (gRPC), in both of its modes, as async context managers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.apache import ANY_DISK, SMALL_HEAP, ApacheBroker, ApacheServer, is_quick
from tests.support.certificates import make_certificate
from tests.support.jvm import QUICK
from tests.support.ports import LOOPBACK, free_port
from tests.support.toolchain import JavaProgram

_SMALL_HEAP = (*QUICK, "-Xms64m", "-Xmx256m")
_READY_TEXT = "rocketmq-proxy startup successfully"
# The defaults are for a machine that runs nothing else.
_FEW_THREADS = {
    "grpcWorkerLoopNum": 2,
    "grpcThreadPoolNums": 4,
    "rocketmqMQClientNum": 1,
    "heartbeatSyncerThreadPoolNums": 1,
    "metadataThreadPoolNums": 1,
    "transactionHeartbeatThreadPoolNums": 2,
    "renewThreadPoolNums": 1,
    "renewMaxThreadPoolNums": 1,
    "remotingHeartbeatThreadPoolNums": 1,
    "remotingTopicRouteThreadPoolNums": 1,
    "remotingSendMessageThreadPoolNums": 1,
    "remotingPullMessageThreadPoolNums": 1,
    "remotingUpdateOffsetThreadPoolNums": 1,
    "remotingDefaultThreadPoolNums": 1,
    "enablePrintJstack": False,
}


class ApacheProxy(ApacheServer):
    """The proxy in CLUSTER mode: its own process in front of the brokers of `namesrv_address`.

    It needs at least one broker of the cluster, in which it creates a topic of its own at the start.
    `settings` are further keys of `rmq-proxy.json`. Other `jvm_options` mean Apache's default settings.
    """

    main_class = "org.apache.rocketmq.proxy.ProxyStartup"
    name = "proxy"

    def __init__(
        self,
        program: JavaProgram,
        namesrv_address: str,
        *,
        cluster: str = "DefaultCluster",
        home: Path | None = None,
        settings: Mapping[str, object] | None = None,
        serialize_type: str = "JSON",
        jvm_options: Sequence[str] = _SMALL_HEAP,
    ) -> None:
        super().__init__(
            program,
            port=free_port(),
            home=home,
            jvm_options=jvm_options,
            properties={
                "rocketmq.serialize.type": serialize_type,
                "rmq.logback.configurationFile": "rmq.proxy.logback.xml",
                "tls.server.mode": "permissive",
                **ANY_DISK,  # for the broker of LOCAL mode
            },
        )
        self._namesrv_address = namesrv_address
        self._cluster = cluster
        self._quick = is_quick(jvm_options)
        self._settings = {**(_FEW_THREADS if self._quick else {}), **(settings or {})}
        self._remoting_port = free_port()

    @property
    def remoting_address(self) -> str:
        """The address for clients of the remoting protocol."""
        return f"{LOOPBACK}:{self._remoting_port}"

    def _write_configuration(self) -> list[str]:
        file = self.home / "rmq-proxy.json"
        settings = {
            "proxyMode": "CLUSTER",
            "rocketMQClusterName": self._cluster,
            "namesrvAddr": self._namesrv_address,
            "localServeAddr": LOOPBACK,
            "grpcServerPort": self.port,
            "remotingListenPort": self._remoting_port,
            "metricsExporterType": "DISABLE",
            **(self._with_certificate() if self._quick else {}),
            **self._settings,
        }
        file.write_text(json.dumps(settings, indent=2))
        return ["-pc", str(file)]

    def _with_certificate(self) -> Mapping[str, object]:
        """Settings with a certificate for TLS; otherwise the proxy makes two RSA keys, in 3 s of CPU."""
        certificate = make_certificate(self.home, "proxy")
        self._properties |= {
            "tls.test.mode.enable": "false",
            "tls.server.certPath": str(certificate.cert_file),
            "tls.server.keyPath": str(certificate.key_file),
        }
        return {"tlsTestModeEnable": False, **certificate.settings}

    async def is_ready(self) -> bool:
        return _READY_TEXT in self.log_path.read_text(errors="replace")


class ApacheLocalProxy(ApacheProxy):
    """The proxy in LOCAL mode, with a broker in its process; `broker` says the broker's address and files.

    `broker_settings` go into the broker's configuration file.
    """

    def __init__(
        self,
        program: JavaProgram,
        namesrv_address: str,
        *,
        home: Path | None = None,
        settings: Mapping[str, object] | None = None,
        broker_settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = SMALL_HEAP,
    ) -> None:
        super().__init__(
            program,
            namesrv_address,
            home=home,
            settings={"proxyMode": "LOCAL", **(settings or {})},
            jvm_options=jvm_options,
        )
        self.broker = ApacheBroker(
            program, namesrv_address, home=self.home, settings=broker_settings, jvm_options=jvm_options
        )

    def _write_configuration(self) -> list[str]:
        file = self.home / "broker.conf"
        configuration = self.broker.configuration()
        file.write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
        return [*super()._write_configuration(), "-bc", str(file)]

    async def is_ready(self) -> bool:
        return await super().is_ready() and await self.broker.is_ready()

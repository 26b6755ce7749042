"""`--ready-file` of the daemons: its addresses are those that they serve."""

from __future__ import annotations

import asyncio
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rmq_remoting.build_form import BUILD_FORM
from tests.support.own_servers import OwnBroker, OwnNamesrv, OwnProxy
from tests.support.ports import LOOPBACK

_ANY_METRICS_PORT = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


async def _accepts(address: str) -> None:
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()


def _facts(server: OwnNamesrv | OwnBroker | OwnProxy) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(server.ready_file.read_text())
    process = {"version": version("rmq"), "pid": server.process.pid, "form": BUILD_FORM}
    assert {key: facts.pop(key) for key in process} == process
    return facts


async def test_the_addresses_of_each_daemon_are_in_its_file(tmp_path: Path) -> None:
    every_interface = {"bindAddress": "0.0.0.0", **_ANY_METRICS_PORT}
    async with (
        OwnNamesrv(home=tmp_path / "namesrv", settings=_ANY_METRICS_PORT) as namesrv,
        OwnBroker(
            namesrv.address, home=tmp_path / "broker", settings={**every_interface, "grpcServerPort": "0"}
        ) as broker,
        OwnProxy(
            namesrv.address,
            home=tmp_path / "proxy",
            settings={**every_interface, "enableRemotingServer": "false"},
        ) as proxy,
    ):
        of_namesrv, of_broker, of_proxy = _facts(namesrv), _facts(broker), _facts(proxy)
        for facts in (of_namesrv, of_broker, of_proxy):
            host, _, port = facts["metrics"].rpartition(":")
            assert (host, int(port) > 0) == (LOOPBACK, True)
            await _accepts(facts.pop("metrics"))
        assert of_namesrv == {"name": "namesrv", "address": namesrv.address}
        assert of_broker == {"name": "broker-a", "address": broker.address, "namesrv": namesrv.address}
        assert of_proxy == {"name": "proxy", "address": proxy.address, "namesrv": namesrv.address}

        await broker.stop()
        assert not broker.ready_file.exists()


class _Standalone(OwnBroker):
    """`rmq-broker --standalone` on any free ports."""

    def _command(self) -> list[str]:
        return [*super()._command(), "--standalone", "--namesrv-port", "0"]


async def test_a_standalone_broker_names_its_name_server_and_its_grpc_port(tmp_path: Path) -> None:
    async with _Standalone("", home=tmp_path) as broker:
        facts = _facts(broker)
        assert facts.keys() == {"name", "address", "namesrv", "grpc"}
        for key in ("address", "namesrv", "grpc"):
            await _accepts(facts[key])

"""`rmq-health` and ports that serve TLS alone, or demand certificates of clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rmq_remoting.daemon.health import main
from tests.support.certificates import Certificate, make_certificate
from tests.support.clusters import running_cluster
from tests.support.ports import LOOPBACK
from tests.support.running_proxy import remoting_port, running_proxy

_ENFORCING = {"tls.server.mode": "enforcing"}


def _needing(own: Certificate) -> dict[str, str]:
    """Return settings that demand certificates of clients."""
    return {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(own.cert_file)}


@pytest.mark.parametrize("needs_certificates", [False, True])
async def test_a_proxy_that_enforces_tls_is_alive(tmp_path: Path, needs_certificates: bool) -> None:
    own = make_certificate(tmp_path, "own")
    keys = {**_ENFORCING, **make_certificate(tmp_path, "server").settings}
    keys |= _needing(own) if needs_certificates else {}
    async with running_cluster(tmp_path) as cluster, running_proxy(cluster.address, **keys) as proxy:
        for role, port in (("proxy", proxy.port), ("proxy-remoting", remoting_port(proxy))):
            await _check(role, port, own, needs_certificates)


@pytest.mark.parametrize("needs_certificates", [False, True])
async def test_a_broker_that_enforces_tls_is_alive(tmp_path: Path, needs_certificates: bool) -> None:
    own, made = make_certificate(tmp_path, "own"), make_certificate(tmp_path, "server")
    keys: dict[str, Any] = {
        **_ENFORCING,
        "tls.server.certPath": str(made.cert_file),
        "tls.server.keyPath": str(made.key_file),
    }
    keys |= _needing(own) if needs_certificates else {}
    async with running_cluster(tmp_path, **keys) as cluster:
        await _check("broker", cluster.broker.port, own, needs_certificates)


async def _check(role: str, port: int, own: Certificate, needs_certificates: bool) -> None:
    shown = ["--certificate", str(own.cert_file), "--key", str(own.key_file)]
    words = [role, f"{LOOPBACK}:{port}", "--timeout", "10"]
    assert await asyncio.to_thread(main, words) == int(needs_certificates)
    assert await asyncio.to_thread(main, [*words, *shown]) == 0

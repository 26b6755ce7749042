"""Apache's Java client 5.3.3 on the remoting port of the proxy, in front of this project's brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rmq_client import MessageExt, Producer
from rmq_client.admin import Admin
from rmq_proxy.proxy import Proxy
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import Serialization
from tests.integration.test_grpc_access import ACCESS, PROXY
from tests.interop.checks import bodies_of, expected_bodies
from tests.interop.consumers import consumer_of
from tests.interop.foreign import JavaClient, JavaShell
from tests.support.certificates import make_certificate
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.running_proxy import running_proxy
from tests.support.signed_requests import ROOT
from tests.support.toolchain import JavaProgram

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    checks = {"transactionCheckInterval": "500", "transactionTimeOut": "500"}
    async with running_cluster(tmp_path, {"broker-a": {}, "broker-b": {}}, **checks) as running:
        async with Admin(running.address) as admin:
            for topic in ("T", "O", "R"):
                await admin.create_topic(topic, queues=2)
            await admin.create_topic("X", queues=2, attributes={"+message.type": "TRANSACTION"})
        yield running


@pytest.fixture
async def proxy(cluster: RunningCluster) -> AsyncIterator[Proxy]:
    async with running_proxy(cluster.address) as running:
        yield running


@pytest.fixture
def shell(proxy: Proxy, java_program: JavaProgram, tmp_path: Path) -> Iterator[JavaShell]:
    client = JavaClient(java_program, proxy.remoting_address, tmp_path / "java")
    with client.shell() as running:
        yield running


async def test_java_uses_a_cluster_through_the_proxy(proxy: Proxy, shell: JavaShell) -> None:
    """One test of all kinds, because each start of a JVM takes seconds."""
    for mode in ("sync", "async", "batch"):
        (await shell.run("send", topic="T", count=6, mode=mode, batch=3)).check()
    pulled = await shell.run("pull", topic="T", group="pulls", count=18)
    assert bodies_of(pulled.check()) == sorted(expected_bodies(6) * 3)

    received = await shell.run("consume", topic="T", group="retries", count=18, refuse_first=1)
    accepted = [each["bodySha256"] for each in received.check().messages if each["accepted"]]
    assert sorted(accepted) == sorted(expected_bodies(6) * 3)
    assert received.result["deliveries"] == 19

    (await shell.run("send", topic="O", count=6, mode="orderkey")).check()
    ordered = await shell.run("consume", topic="O", group="ordered", count=6, orderly=True)
    assert bodies_of(ordered.check()) == expected_bodies(6)

    undecided = await shell.run("transact", topic="X", group="p", say="unknow", check="commit", checks=1)
    undecided.check()
    assert [event["topic"] for event in undecided.events if event["event"] == "checked"] == ["X"]
    committed = await shell.run("consume", topic="X", group="committed", count=1)
    assert len(committed.check().messages) == 1


async def test_java_asks_the_sdk_through_the_proxy(proxy: Proxy, shell: JavaShell) -> None:
    async with Producer(proxy.remoting_address, group="answering") as producer:

        async def answer(messages: list[MessageExt]) -> None:
            for message in messages:
                await producer.reply(message, b"re: " + message.body)

        async with consumer_of(proxy.remoting_address, "R", answer):
            outcome = await shell.run("request", topic="R", body="ping")
    assert outcome.check().result["body"] == "re: ping"


async def test_java_pops_through_the_proxy(cluster: RunningCluster, shell: JavaShell) -> None:
    """The proxy has a broker assign the queues, which Apache's proxy does not do on this port."""
    async with Admin(cluster.address) as admin:
        await admin.create_group("pops")
        await admin.set_consume_mode("pops", "T", pop=True, share_queues=8)
    (await shell.run("send", topic="T", count=8)).check()
    options = {"refuse_first": 1, "pop_delay_s": 1}
    received = await shell.run("consume", topic="T", group="pops", count=8, pop=True, **options)
    accepted = [each["bodySha256"] for each in received.check().messages if each["accepted"]]
    assert sorted(accepted) == expected_bodies(8)
    assert received.result["deliveries"] == 9
    popped = [broker.requests(RequestCode.POP_MESSAGE) for broker in cluster.brokers.values()]
    assert all(popped), "both brokers have queues of the topic"


async def _sends_and_receives(client: JavaClient) -> None:
    """Let Java send and receive eight messages of the topic T."""
    with client.shell() as shell:
        (await shell.run("send", topic="T", count=8)).check()
        received = await shell.run("consume", topic="T", group="g", count=8)
        assert bodies_of(received.check()) == expected_bodies(8)


async def test_java_with_binary_headers(
    cluster: RunningCluster, proxy: Proxy, java_program: JavaProgram, tmp_path: Path
) -> None:
    await _sends_and_receives(
        JavaClient(java_program, proxy.remoting_address, tmp_path / "java", header="ROCKETMQ")
    )
    sent = [
        each for broker in cluster.brokers.values() for each in broker.requests(RequestCode.SEND_MESSAGE_V2)
    ]
    assert {each.serialization for each in sent} == {Serialization.BINARY}


async def test_java_with_tls(cluster: RunningCluster, java_program: JavaProgram, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "server")
    keys = {
        "tls.server.mode": "enforcing",
        **certificate.settings,
    }
    verifying = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(certificate.cert_file),
    }
    async with running_proxy(cluster.address, **keys) as proxy:
        await _sends_and_receives(
            JavaClient(java_program, proxy.remoting_address, tmp_path / "java", properties=verifying)
        )


async def test_java_with_access_keys(java_program: JavaProgram, tmp_path: Path) -> None:
    root = {"interop.accessKey": ROOT.access_key, "interop.secretKey": ROOT.secret_key}
    wrong = {**root, "interop.secretKey": "wrong"}
    async with (
        running_cluster(tmp_path, {"broker-a": {"T": 2}}, **ACCESS) as secured,
        running_proxy(secured.address, **PROXY) as proxy,
    ):
        address = proxy.remoting_address
        await _sends_and_receives(JavaClient(java_program, address, tmp_path / "java", properties=root))
        refused = JavaClient(java_program, address, tmp_path / "wrong", properties=wrong)
        with refused.shell() as shell:
            outcome = await shell.run("send", topic="T", count=1)
        assert not outcome.ok
        assert len(secured.broker.messages("T")) == 8

"""The SDK with Apache's servers that require access keys and use TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest

from rmq_client import (
    Admin,
    BatchPolicy,
    ClientSettings,
    ConsumeContext,
    ConsumeResult,
    Credentials,
    Message,
    MessageExt,
    NotAuthenticated,
    NotAuthorized,
    Producer,
    PullConsumer,
    PushConsumer,
    RawPuller,
    Serialization,
    SimpleConsumer,
    TlsFailed,
    TlsSettings,
)
from tests.interop.clusters import Apache
from tests.support.apache import WITH_TLS, ApacheBroker, ApacheNamesrv, apache_cluster
from tests.support.apache_security import ACCESS_CONTROL, SUPER_USER, create_user, grant, with_tls
from tests.support.certificates import Certificate, make_certificate
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

pytestmark = pytest.mark.java

_SUPER = ClientSettings(credentials=SUPER_USER)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"), "servers")


@pytest.fixture(scope="module")
def secured(
    apache_program: JavaProgram, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Apache]:
    """A secured cluster for all tests of this module."""
    options = with_tls(certificate, tmp_path_factory.mktemp("tls"))
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            namesrv = runner.run(
                stack.enter_async_context(ApacheNamesrv(apache_program, jvm_options=options))
            )
            broker = ApacheBroker(
                apache_program, namesrv.address, settings=ACCESS_CONTROL, jvm_options=options
            )
            runner.run(stack.enter_async_context(broker))
            yield namesrv, broker
        finally:
            runner.run(stack.aclose())


@pytest.fixture
async def address(secured: Apache, name: str) -> str:
    """The name server's address; the topic of the test has four queues."""
    async with Admin(secured[0].address, settings=_SUPER) as admin:
        await admin.create_topic(name, queues=4)
    return secured[0].address


class _RefusesOnce:
    """A listener that refuses each message once, for a second."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def book(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        if messages[0].reconsume_times == 0:
            context.delay_level = 1
            return ConsumeResult.LATER
        self.bodies += [message.body for message in messages]
        return ConsumeResult.SUCCESS


async def _everything_works(address: str, topic: str, settings: ClientSettings) -> None:
    async with Producer(address, group=f"p-{topic}", settings=settings) as producer:
        result = await producer.send(Message(topic, "ü".encode(), tags="a", keys=["schlüssel"]))
        await producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
        await producer.send_oneway(Message(topic, b"4"))
    group = f"p-{topic}"
    async with Producer(address, group=group, settings=settings, batching=BatchPolicy()) as producer:
        await asyncio.gather(*(producer.send(Message(topic, b"%d" % number)) for number in range(5, 9)))
    bodies = sorted(["ü".encode(), *(b"%d" % number for number in range(2, 9))])
    till = _RefusesOnce()
    async with PushConsumer(
        address,
        group=f"g-{topic}",
        topics=[topic],
        listener=till.book,
        consume_from="first",
        settings=settings,
    ):
        await until(lambda: len(till.bodies) >= len(bodies), 60)
    assert sorted(till.bodies) == bodies
    async with Admin(address, settings=settings) as admin:
        assert (await admin.lag(f"g-{topic}", topic)).total == 0  # the last commits are signed, too
        assert await admin.topic_stats(topic)
        message = await admin.view_message(topic, result.offset_msg_id)
        assert message is not None
        assert message.body == "ü".encode()
    async with PullConsumer(address, group=f"l-{topic}", consume_from="first", settings=settings) as puller:
        await puller.assign(await puller.queues(topic))
        pulled: list[MessageExt] = []
        async with asyncio.timeout(30):
            while len(pulled) < len(bodies):
                pulled += await puller.poll()
        await puller.commit()
        committed = await puller.committed(result.queue)
        assert committed is not None
    async with RawPuller(address, group=f"r-{topic}", settings=settings) as raw:
        assert (await raw.pull(result.queue, result.queue_offset)).body


@pytest.mark.parametrize("serialization", Serialization, ids=lambda form: form.name)
async def test_all_clients_with_keys(address: str, name: str, serialization: Serialization) -> None:
    await _everything_works(
        address, name, ClientSettings(credentials=SUPER_USER, serialization=serialization)
    )


async def test_pops_with_keys(address: str, name: str) -> None:
    async with Producer(address, group="p", settings=_SUPER) as producer:
        await producer.send(Message(name, b"x"))
    async with SimpleConsumer(
        address, group=f"g-{name}", topics=[name], consume_from="first", settings=_SUPER
    ) as consumer:
        async with asyncio.timeout(60):
            while not (received := await consumer.receive(1, invisible_seconds=30, timeout_seconds=5)):
                pass
        await consumer.change_invisible_time(received[0], 20)
        await consumer.ack(received[0])


async def test_all_clients_over_tls(address: str, name: str, certificate: Certificate) -> None:
    tls = TlsSettings(ca_file=certificate.cert_file)
    await _everything_works(address, name, ClientSettings(credentials=SUPER_USER, tls=tls))


async def test_the_test_certificate_of_apaches_servers(apache_program: JavaProgram) -> None:
    settings = ClientSettings(tls=TlsSettings(verify="none"))
    async with apache_cluster(apache_program, jvm_options=WITH_TLS) as (namesrv, _):
        async with Admin(namesrv.address, settings=settings) as admin:
            await admin.create_topic("T", queues=1)
        async with Producer(namesrv.address, group="p", settings=settings) as producer:
            assert (await producer.send(Message("T", b"x"))).queue_offset == 0


async def test_untrusted_servers_are_refused(address: str, name: str) -> None:
    settings = ClientSettings(credentials=SUPER_USER, tls=True)
    async with Producer(address, group="p", settings=settings) as producer:
        with pytest.raises(TlsFailed, match="its certificate is not trusted: self-signed certificate"):
            await producer.send(Message(name, b"x"))


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        (None, "username cannot be null"),
        (Credentials("nobody", "secret"), "User:nobody is not found"),
        (Credentials(SUPER_USER.access_key, "wrong"), "check signature failed"),
    ],
)
async def test_wrong_keys(address: str, name: str, keys: Credentials | None, complaint: str) -> None:
    settings = ClientSettings(credentials=keys)

    async def refused(call: Awaitable[object]) -> None:
        with pytest.raises(NotAuthenticated, match=rf"NO_PERMISSION.*{complaint}.*check access key"):
            await call

    async with Producer(address, group="p", settings=settings) as producer:
        await refused(producer.send(Message(name, b"x")))
        await refused(producer.send_batch([Message(name, b"x")]))
        queue = (await producer.queues(name))[0]
    async with RawPuller(address, group="g", settings=settings) as raw:
        await refused(raw.pull(queue, 0))
    async with Admin(address, settings=settings) as admin:
        await refused(admin.max_offset(queue))
        await refused(admin.create_topic(f"{name}-more"))


async def test_a_push_consumer_logs_wrong_keys(
    address: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ClientSettings(credentials=Credentials("nobody", "secret"))
    async with PushConsumer(
        address, group="g", topics=[name], listener=lambda messages: None, settings=settings
    ):
        await until(lambda: "User:nobody is not found" in caplog.text, 30)


async def test_missing_rights_can_be_granted(address: str, name: str) -> None:
    keys = Credentials(f"user-{name}", "a-users-secret")
    await create_user(address, keys)
    settings = ClientSettings(credentials=keys)
    async with Producer(address, group="p", settings=settings) as producer:
        missing = rf"User:user-{name} has no permission to access Topic:{name} from .*mqadmin createAcl"
        with pytest.raises(NotAuthorized, match=missing):
            await producer.send(Message(name, b"x"))
        await grant(address, keys, {f"Topic:{name}": ["Pub"]})
        result = await producer.send(Message(name, b"x"))
    async with RawPuller(address, group=f"g-{name}", settings=settings) as raw:
        with pytest.raises(NotAuthorized, match=f"Topic:{name}"):
            await raw.pull(result.queue, result.queue_offset)


async def _user_with(address: str, name: str, rights: dict[str, list[str]]) -> ClientSettings:
    keys = Credentials(f"user-{name}", "a-users-secret")
    await create_user(address, keys)
    await grant(address, keys, rights)
    return ClientSettings(credentials=keys)


async def test_rights_that_producers_and_consumers_need(address: str, name: str) -> None:
    rights = {f"Topic:{name}": ["Pub", "Sub"], f"Group:g-{name}": ["Sub"]}
    settings = await _user_with(address, name, rights)
    async with Producer(address, group="p", settings=settings) as producer:
        result = await producer.send(Message(name, b"x"))
    till = _RefusesOnce()
    async with PushConsumer(
        address,
        group=f"g-{name}",
        topics=[name],
        listener=till.book,
        consume_from="first",
        settings=settings,
    ):
        await until(lambda: till.bodies == [b"x"], 60)
    async with RawPuller(address, group=f"g-{name}", settings=settings) as raw:
        assert (await raw.pull(result.queue, result.queue_offset)).body
    async with Admin(address, settings=settings) as admin:
        with pytest.raises(NotAuthorized, match=f"Topic:{name}"):
            await admin.max_offset(result.queue)


async def test_rights_that_spark_needs(address: str, name: str) -> None:
    async with Producer(address, group="p", settings=_SUPER) as producer:
        result = await producer.send(Message(name, b"x"))
    rights = {f"Topic:{name}": ["Sub", "Get"], f"Group:g-{name}": ["Sub"]}
    settings = await _user_with(address, name, rights)
    async with RawPuller(address, group=f"g-{name}", settings=settings) as raw:
        assert (await raw.pull(result.queue, result.queue_offset)).body
    async with Admin(address, settings=settings) as admin:
        await admin.topics()
        await admin.cluster_info()
        assert await admin.max_offset(result.queue) == result.queue_offset + 1
        assert await admin.min_offset(result.queue) == 0
        assert await admin.search_offset(result.queue, datetime.fromtimestamp(0, UTC)) == 0
        await admin.commit_offset(f"g-{name}", result.queue, 1)
        assert await admin.committed_offset(f"g-{name}", result.queue) == 1
        with pytest.raises(NotAuthorized, match=f"Topic:{name}|Cluster:"):
            await admin.delete_topic(name)

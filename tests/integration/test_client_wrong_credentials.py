"""What the SDK's classes raise for users whom a broker does not know, or who may not do what they ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rmq_client import (
    Admin,
    ClientSettings,
    Credentials,
    Message,
    MessageQueue,
    NotAuthenticated,
    NotAuthorized,
    Producer,
    PullConsumer,
    RawPuller,
    SimpleConsumer,
)
from rmq_remoting.bodies.access_control import UserInfo
from tests.support.brokers import running_broker
from tests.support.namesrv import running_namesrv
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.rows import each_row
from tests.support.signed_requests import AUTHENTICATION, ROOT

_DISABLED = Credentials("disabled", "a-secret")
_WITHOUT_RULES = Credentials("without-rules", "a-secret")
_Use = Callable[[str, ClientSettings], Awaitable[object]]


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """A broker with rules, two users who may do nothing, and a topic."""
    async with (
        running_namesrv(tmp_path) as namesrv,
        running_broker(
            tmp_path,
            **AUTHENTICATION,
            authorizationEnabled="true",
            namesrvAddr=namesrv.address,
            readyWaitMillis=10_000,
        ) as broker,
    ):
        users = broker.services.access.tables.users
        users.create(UserInfo(username="disabled", password="a-secret", user_status="disable"))
        users.create(UserInfo(username="without-rules", password="a-secret"))
        async with Admin(namesrv.address, settings=ClientSettings(credentials=ROOT)) as admin:
            await admin.create_topic("T", queues=1)
        yield namesrv.address


async def _send(address: str, settings: ClientSettings) -> object:
    async with Producer(address, group="p", settings=settings) as producer:
        return await producer.send(Message("T", b"x"))


async def _send_batch(address: str, settings: ClientSettings) -> object:
    async with Producer(address, group="p", settings=settings) as producer:
        return await producer.send_batch([Message("T", b"x"), Message("T", b"y")])


async def _begin_transaction(address: str, settings: ClientSettings) -> None:
    async with (
        Producer(address, group="p", settings=settings) as producer,
        producer.transaction(Message("T", b"x")),
    ):
        pass


async def _pull(address: str, settings: ClientSettings) -> object:
    async with RawPuller(address, group="g", settings=settings) as puller:
        return await puller.pull(MessageQueue("T", "broker-a", 0), 0)


async def _find_committed(address: str, settings: ClientSettings) -> object:
    async with PullConsumer(address, group="g", settings=settings) as puller:
        await puller.assign([MessageQueue("T", "broker-a", 0)])
        return await puller.committed(MessageQueue("T", "broker-a", 0))


async def _pop(address: str, settings: ClientSettings) -> object:
    async with SimpleConsumer(address, group="g", topics=["T"], settings=settings) as consumer:
        return await consumer.receive(1, timeout_seconds=1)


async def _create_topic(address: str, settings: ClientSettings) -> None:
    async with Admin(address, settings=settings) as admin:
        await admin.create_topic("U", queues=1)


async def _delete_topic(address: str, settings: ClientSettings) -> None:
    async with Admin(address, settings=settings) as admin:
        await admin.delete_topic("T")


async def _see_topic(address: str, settings: ClientSettings) -> object:
    async with Admin(address, settings=settings) as admin:
        return await admin.topic_stats("T")


async def _query(address: str, settings: ClientSettings) -> object:
    async with Admin(address, settings=settings) as admin:
        return await admin.query_messages("T", "k")


_USES: dict[str, _Use] = {
    "send": _send,
    "send a batch": _send_batch,
    "begin a transaction": _begin_transaction,
    "pull": _pull,
    "find a committed offset": _find_committed,
    "pop": _pop,
    "create a topic": _create_topic,
    "delete a topic": _delete_topic,
    "see a topic": _see_topic,
    "query": _query,
}


@each_row("use", _USES)
async def test_nothing_is_done_for_them(address: str, use: str) -> None:
    for keys, error, remark in (
        (None, NotAuthenticated, "set the client's credentials"),
        (Credentials("root", "wrong"), NotAuthenticated, "check signature failed"),
        (Credentials("nobody", "roots-secret"), NotAuthenticated, "User:nobody is not found"),
        (_DISABLED, NotAuthenticated, "User:disabled is disabled"),
        (_WITHOUT_RULES, NotAuthorized, "User:without-rules has no permission to access"),
    ):
        with pytest.raises(error, match=remark):
            await _USES[use](address, ClientSettings(credentials=keys))
    async with Admin(address, settings=ClientSettings(credentials=ROOT)) as admin:
        (stats,) = (await admin.topic_stats("T")).values()
        assert stats.max_offset == 0

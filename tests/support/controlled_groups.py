"""A group of broker processes with a controller: ours, Apache's, or one of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rmq_broker.store.log.mapped_file import list_files
from rmq_remoting.bodies.controller import SyncStateSet
from rmq_remoting.bodies.route import GetBrokerMemberGroupResponseBody
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.apache import SMALL_HEAP, ApacheBroker
from tests.support.broker_requests import create_topic, pull, pulled, request, send
from tests.support.own_servers import OwnBroker
from tests.support.ports import LOOPBACK
from tests.support.raw_client import raw_client
from tests.support.toolchain import JavaProgram

Server = OwnBroker | ApacheBroker
_POLL_SECONDS = 0.02
_BETWEEN_SECONDS = 0.002
_ANSWER_SECONDS = 1.0
_LOAD_ANSWER_SECONDS = 5.0
# Of a server on a machine that is busy with other tests.
START_SECONDS = 240
_READ_SECONDS = 30
_BODY = b"x" * 500
_FILES = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "brokerIP2": LOOPBACK,
}


@dataclass(slots=True)
class Group:
    """Where a group registers; its settings ask that no acknowledged message is lost."""

    namesrv: str
    controller: str
    name: str = "broker-a"
    topic: str = "T"

    def ours(self, home: Path, **settings: str) -> OwnBroker:
        """A broker of ours, not started."""
        return OwnBroker(
            self.namesrv, broker_name=self.name, home=home, settings={**self._settings(), **settings}
        )

    def apaches(
        self, program: JavaProgram, home: Path, *, jvm_options: Sequence[str] = SMALL_HEAP, **settings: str
    ) -> ApacheBroker:
        """A broker of Apache's, not started."""
        return ApacheBroker(
            program,
            self.namesrv,
            broker_name=self.name,
            home=home,
            settings={**self._settings(), **settings},
            jvm_options=jvm_options,
        )

    def _settings(self) -> Mapping[str, str]:
        return {
            **_FILES,
            "enableControllerMode": "true",
            "controllerAddr": self.controller,
            "allAckInSyncStateSet": "true",
            "slaveTimeout": "3000",
        }

    # --- what the servers say ---

    async def in_sync(self) -> tuple[int | None, set[int]]:
        """The master's id and the in-sync set, as the controller has them."""
        asked = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=self.name)
        leader = await self.leading_controller()
        if leader is None:
            return None, set()
        try:
            async with raw_client(_port(leader)) as client:
                answer = await client.ask(asked)
        except (OSError, EOFError, TimeoutError):
            return None, set()
        if answer.code != ResponseCode.SUCCESS:
            return None, set()
        master = answer.ext_fields.get("masterBrokerId")
        return None if master is None else int(master), set(SyncStateSet.decode(answer.body).sync_state_set)

    async def leading_controller(self) -> str | None:
        """The address of the controller that leads, as the first one tells that knows it."""
        for address in self.controller.split(";"):
            try:
                async with raw_client(_port(address)) as client:
                    answer = await client.ask(request(RequestCode.CONTROLLER_GET_METADATA_INFO))
            except (OSError, EOFError, TimeoutError):
                continue
            if leader := answer.ext_fields.get("controllerLeaderAddress"):
                return str(leader)
        return None

    async def until_another_leads(self, before: str | None, timeout_seconds: float = 60.0) -> None:
        """Wait until another controller leads than `before`."""
        deadline = time.monotonic() + timeout_seconds
        while await self.leading_controller() in (before, None):
            assert time.monotonic() < deadline, f"no controller leads after the loss of {before}"
            await asyncio.sleep(_POLL_SECONDS)

    async def until_in_sync(self, count: int, timeout_seconds: float = 60.0) -> int:
        """Wait until that many brokers are in sync and there is a master; return the master's id."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            master, members = await self.in_sync()
            if master is not None and len(members) == count:
                return master
            assert time.monotonic() < deadline, f"master={master} in_sync={members} of {self.name}"
            await asyncio.sleep(_POLL_SECONDS)

    async def master_address(self) -> str | None:
        """The master's address, as the name server tells producers; None if it knows no master."""
        asked = request(
            RequestCode.GET_BROKER_MEMBER_GROUP, brokerName=self.name, clusterName="DefaultCluster"
        )
        async with raw_client(_port(self.namesrv)) as client:
            answer = await client.ask(asked)
        found = GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
        return None if found is None else found.broker_addrs.get(0)

    async def until_accepted(self, body: bytes, timeout_seconds: float = 60.0) -> int:
        """Send until a master accepts a message, with the route asked for anew each time; return its port.

        Raises AssertionError if none does in time.
        """
        deadline = time.monotonic() + timeout_seconds
        last: object = "no master"
        while time.monotonic() < deadline:
            address = await self.master_address()
            if address is not None:
                last = await self._try(_port(address), body)
                if last == ResponseCode.SUCCESS:
                    return _port(address)
            await asyncio.sleep(_POLL_SECONDS)
        raise AssertionError(f"no master of {self.name} accepts messages: {last!r}")

    async def _try(self, port: int, body: bytes) -> object:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), raw_client(port) as client:
                answer = await client.ask(send(self.topic, body))
                return answer.code
        except (OSError, TimeoutError, EOFError) as error:
            return error

    async def create_topic(self, port: int) -> None:
        """Create the topic with one queue."""
        async with raw_client(port) as client:
            answer = await client.ask(create_topic(self.topic, 1))
            assert answer.code == ResponseCode.SUCCESS, answer.remark


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


class Load:
    """A producer that looks for the master after each failure; `acknowledged` holds what it was promised."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._task: asyncio.Task[None] | None = None
        self.acknowledged: list[bytes] = []

    async def __aenter__(self) -> Load:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Send nothing more."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def until(self, count: int) -> None:
        """Wait until that many messages were acknowledged."""
        deadline = time.monotonic() + START_SECONDS
        while len(self.acknowledged) < count:
            assert self._task is not None and not self._task.done(), self._task
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    async def _run(self) -> None:
        number = 0
        while True:
            address = await self._group.master_address()
            if address is None:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            try:
                async with raw_client(int(address.rpartition(":")[2])) as client:
                    while True:
                        body = b"%d " % number + _BODY
                        number += 1
                        async with asyncio.timeout(_LOAD_ANSWER_SECONDS):
                            answer = await client.ask(send("T", body))
                        if answer.code != ResponseCode.SUCCESS:
                            await asyncio.sleep(_POLL_SECONDS)
                            break
                        self.acknowledged.append(body)
                        await asyncio.sleep(_BETWEEN_SECONDS)
            except (OSError, TimeoutError, EOFError):
                await asyncio.sleep(_POLL_SECONDS)


async def bodies(port: int) -> list[bytes]:
    found: list[bytes] = []
    async with raw_client(port) as client:
        while (answer := await client.ask(pull("T", offset=len(found)))).code == ResponseCode.SUCCESS:
            found += [message.body for message in pulled(answer)]
    return found


async def _until_read(port: int, acknowledged: list[bytes]) -> None:
    """Wait until a broker gives consumers all these messages."""
    deadline = time.monotonic() + _READ_SECONDS
    while missing := set(acknowledged) - set(await bodies(port)):
        assert time.monotonic() < deadline, f"{len(missing)} of {len(acknowledged)} messages are lost"
        await asyncio.sleep(0.1)


def _log(server: Server) -> bytes:
    """The commit log without the space behind its end."""
    files = list_files(server.store_path / "commitlog")
    return b"".join(path.read_bytes() for path in files).rstrip(b"\0")


async def _fail_over(group: Group, servers: dict[int, Server], load: Load, in_sync: int) -> int:
    """Kill the master under load; return the id of the next one, which serves then.

    `in_sync`: how many brokers are in sync before that.
    """
    master = await group.until_in_sync(in_sync)
    await load.until(len(load.acknowledged) + 100)
    before = len(load.acknowledged)
    servers[master].kill()
    await load.until(before + 100)
    following, members = await group.in_sync()
    assert following is not None and following != master
    assert following in members and master not in members
    return following


async def started(stack: AsyncExitStack, server: Server) -> Server:
    """Start a server; it is killed at the end."""
    stack.callback(server.close)
    await server.start(START_SECONDS)
    return server


async def started_members(
    stack: AsyncExitStack, group: Group, members: Sequence[Server]
) -> dict[int, Server]:
    """Start the members of a new group in this order, and create the topic; return them by their ids."""
    servers: dict[int, Server] = {}
    for broker_id, server in enumerate(members, start=1):
        servers[broker_id] = await started(stack, server)
        if broker_id == 1:
            await group.create_topic(server.port)
    return servers


async def check_failovers(
    group: Group,
    members: Sequence[Server],
    *,
    rounds: int,
    before_each: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Let each of two brokers take over from the other in turns; the master is killed under load.

    `before_each` is called under load before each of the `rounds`. Afterwards every acknowledged message is
    there, and both logs are the same.
    """
    async with AsyncExitStack() as stack:
        servers = await started_members(stack, group, members)
        async with Load(group) as load:
            for _ in range(rounds):
                if before_each is not None:
                    await group.until_in_sync(2)
                    await before_each()
                following = await _fail_over(group, servers, load, 2)
                await servers[3 - following].start(START_SECONDS)
            await _check_logs(group, servers, load)


async def check_losses(group: Group, members: Sequence[Server]) -> None:
    """Kill the master of the moment until one broker is left, then start the others again.

    Afterwards every acknowledged message is there, and all logs are the same.
    """
    async with AsyncExitStack() as stack:
        servers = await started_members(stack, group, members)
        async with Load(group) as load:
            lost = []
            for in_sync in range(len(servers), 1, -1):
                lost.append(await group.until_in_sync(in_sync))
                await _fail_over(group, servers, load, in_sync)
            for broker_id in lost:
                await servers[broker_id].start(START_SECONDS)
            await _check_logs(group, servers, load)


async def _check_logs(group: Group, servers: dict[int, Server], load: Load) -> None:
    master = await group.until_in_sync(len(servers))
    await load.until(len(load.acknowledged) + 50)
    await load.end()
    await _until_read(servers[master].port, load.acknowledged)
    logs = [_log(server) for server in servers.values()]
    shortest = min(len(log) for log in logs)
    assert len({log[:shortest] for log in logs}) == 1

"""A broker group on hosts of its own under load, and the operator who replaces a lost master by hand.

`ControlledGroup` in `controlled.py` has a controller instead of the operator.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self

from rmq_remoting.codes import RequestCode, ResponseCode
from tests.crash.directory import check_directory
from tests.support.broker_requests import create_topic, request, succeeded
from tests.support.running import RunningProgram
from tests.support.small_disk import small_disk

from . import checks
from .history import Committed, History, Term
from .load import GROUPS, PUSH_GROUP, QUEUES, TOPIC
from .network import Network
from .nodes import DISK_MEBIBYTES, START_SECONDS, HostedBroker, HostedNamesrv, HostedServer

NAME_SERVER: Final = "names"
CLIENTS: Final = "clients"
BROKER: Final = "broker"
_MASTER: Final = {"brokerRole": "SYNC_MASTER", "brokerId": "0"}
_POLL_SECONDS: Final = 0.05
_SAMPLE_SECONDS: Final = 0.5
# For machines that are busy with other tests.
WHOLE_SECONDS: Final = 300.0
_DRAIN_SECONDS: Final = 90.0


class Group:
    """One name server, one master and its replicas, and a host with clients.

    `async with`: at the end all processes are killed. `terms_are_exact`: terms of masters are known to the
    moment.
    """

    terms_are_exact = True

    def __init__(self, folder: Path, network: Network, settings: Mapping[str, str]) -> None:
        """`network` has the hosts `names`, `clients`, and `broker0`, `broker1` … for the brokers."""
        self.network = network
        self.history = History()
        self.name_server = HostedNamesrv(network.hosts[NAME_SERVER], folder / NAME_SERVER)
        names = [name for name in network.hosts if name.startswith(BROKER)]
        self.brokers = [
            HostedBroker(network.hosts[name], folder / name, self.name_server.address, settings)
            for name in names
        ]
        self.master = self.brokers[0]
        self._folder = folder
        self._ids = {broker: str(number) for number, broker in enumerate(self.brokers)}
        self._stack = AsyncExitStack()
        self._load: RunningProgram | None = None
        self._sampling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            for server in self._servers:
                self._stack.enter_context(small_disk(server.disk, DISK_MEBIBYTES))
                self._stack.callback(server.close)
            await self.name_server.start(START_SECONDS)
            await self._start_brokers()
            async with self.master.console() as client:
                succeeded(await client.ask(create_topic(TOPIC, QUEUES)))
            await self.until_whole()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    @property
    def _servers(self) -> list[HostedServer]:
        return [self.name_server, *self.brokers]

    async def _start_brokers(self) -> None:
        for broker in self.brokers:
            await self.start_again(broker)

    async def __aexit__(self, *_: object) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
        if self._load is not None:
            self._load.kill()
        await self._stack.aclose()

    # --- brokers ---

    @property
    def replicas(self) -> list[HostedBroker]:
        """All brokers but the master."""
        return [broker for broker in self.brokers if broker is not self.master]

    async def start_again(self, broker: HostedBroker) -> None:
        """Start a broker's process, as the master if it is the master, otherwise as a replica."""
        if broker is self.master:
            self.history.terms.append(Term(broker.address, time.monotonic()))
            await broker.start_as(_MASTER)
            return
        number = self._ids[broker]
        await broker.start_as(
            {"brokerRole": "SLAVE", "brokerId": number if number != "0" else str(len(self.brokers))}
        )

    async def start_server(self, server: HostedServer) -> None:
        """Start the process of a broker as above, or that of another server."""
        if isinstance(server, HostedBroker):
            await self.start_again(server)
        else:
            await server.start(START_SECONDS)

    async def start_all(self, servers: Iterable[HostedServer]) -> None:
        """Start processes, which may wait for each other."""
        async with asyncio.TaskGroup() as tasks:
            for server in servers:
                tasks.create_task(self.start_server(server))

    def kill(self, server: HostedServer) -> None:
        """SIGKILL; the term of a master ends."""
        server.kill()
        if server is self.master:
            self.history.terms[-1].ended = time.monotonic()

    async def replace_master(self) -> None:
        """Make the replica with the longest log the master, as docs/replication.md tells operators to.

        The master is dead.
        """
        ends = {}
        for replica in self.replicas:
            ends[replica] = (await replica.ha_status()).ha_client_runtime_info.max_offset
        chosen = max(ends, key=lambda replica: ends[replica])
        await chosen.stop()
        self.master = chosen
        await self.start_again(chosen)

    async def until_whole(self, timeout_seconds: float = WHOLE_SECONDS) -> None:
        """Wait until every replica has all that the master has now. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        end, master = -1, None
        while True:
            status = None
            with suppress(OSError, EOFError, TimeoutError):
                status = await self.master.ha_status()
            if status is not None:
                if self.master is not master:
                    master, end = self.master, status.master_commit_log_max_offset
                acknowledged = [each.slave_ack_offset for each in status.ha_connection_info]
                if len(acknowledged) == len(self.replicas) and all(each >= end for each in acknowledged):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all replicas follow after {timeout_seconds:.0f} s: {status}")
            await asyncio.sleep(_POLL_SECONDS)

    # --- load ---

    async def start_load(self, rate: float) -> None:
        """Start producers and consumers on their host."""
        command = [
            *(sys.executable, "-m", "tests.cluster.load", self.name_server.address),
            *(str(self._load_history), "--rate", str(rate), "--drain", str(_DRAIN_SECONDS)),
        ]
        clients = self.network.hosts[CLIENTS]
        self._load = RunningProgram(clients.command(command), self._folder / "load.stderr")
        await self._load.wait_for("ready", timeout_s=START_SECONDS)
        self._sampling = asyncio.get_running_loop().create_task(self._sample_offsets())
        await self.until_accepted()

    async def until_accepted(self, timeout_seconds: float = WHOLE_SECONDS) -> None:
        """Wait until the load has more acknowledged messages than now. Raises TimeoutError."""
        assert self._load is not None
        before, deadline = self._acknowledged(), time.monotonic() + timeout_seconds
        while self._acknowledged() <= before:
            assert self._load.is_running, "the load has ended"
            if time.monotonic() > deadline:
                raise TimeoutError(f"no send was accepted within {timeout_seconds:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)

    async def end_load(self) -> None:
        """End the producers, and wait until consumers have everything, or get nothing more."""
        assert self._load is not None
        assert self._sampling is not None
        self._load.write_line("end")
        await self._load.wait_for("done", timeout_s=_DRAIN_SECONDS + WHOLE_SECONDS)
        self._sampling.cancel()
        await asyncio.gather(self._sampling, return_exceptions=True)
        self._load.kill()
        self.history.read_load(self._load_history)

    def _acknowledged(self) -> int:
        assert self._load is not None
        progress = self._load.named("progress")
        return int(progress[-1]["acknowledged"]) if progress else 0

    @property
    def _load_history(self) -> Path:
        return self._folder / "history"

    async def _sample_offsets(self) -> None:
        """Ask the master for committed offsets again and again."""
        while True:
            master, samples = self.master, list[Committed]()
            with suppress(OSError, EOFError, TimeoutError, AssertionError):
                async with master.console() as client:
                    for queue_id in range(QUEUES):
                        fields = {"consumerGroup": PUSH_GROUP, "topic": TOPIC, "queueId": queue_id}
                        answer = await client.ask(request(RequestCode.QUERY_CONSUMER_OFFSET, **fields))
                        if answer.code == ResponseCode.SUCCESS:
                            offset = int(answer.ext_fields["offset"])
                            sample = (master.address, PUSH_GROUP, TOPIC, queue_id, offset, time.monotonic())
                            samples.append(Committed(*sample))
                if await self._is_master_still(master):
                    self.history.committed += samples
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def _is_master_still(self, broker: HostedBroker) -> bool:
        return broker is self.master

    # --- the end ---

    async def stop_and_check(self) -> None:
        """Stop all brokers, and check the history against their logs."""
        for replica in self.replicas:
            await replica.stop()
        await self.master.stop()
        history = self.history
        stores = {broker.host.name: broker.store_path for broker in self.brokers}
        checks.logs_are_the_same(stores)
        log = checks.read_log(self.master.store_path, [TOPIC])
        checks.nothing_acknowledged_is_lost(history.sends, log)
        checks.nothing_is_stored_twice(history.sends, log)
        checks.no_place_was_given_twice(history.sends)
        # A master that does not know of the next one stores messages; it cannot acknowledge them.
        accepted, terms = history.sends, history.terms
        if not self.terms_are_exact:
            accepted = history.acknowledged
            terms = checks.until_the_next_accepted(terms, accepted)
        checks.only_the_master_accepted(accepted, terms, are_exact=self.terms_are_exact)
        checks.deliveries_are_in_the_log(history.deliveries, log)
        checks.everything_is_delivered(history.sends, history.deliveries, GROUPS)
        checks.offsets_never_go_back(history.committed, history.terms)
        for store in stores.values():
            check_directory(store, stopped_cleanly=True)


@asynccontextmanager
async def running_group(
    folder: Path, seed: int, brokers: int, settings: Mapping[str, str]
) -> AsyncIterator[Group]:
    """A group with `brokers` brokers, its hosts and their network; no load yet."""
    names = [NAME_SERVER, *(f"{BROKER}{number}" for number in range(brokers)), CLIENTS]
    with Network(names, seed) as network:
        async with Group(folder, network, settings) as group:
            yield group

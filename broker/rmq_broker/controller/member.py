"""This broker as a member of its group: its id, its heartbeats, and the role that the controller gives it.

Source: Apache RocketMQ 5.3.3, ReplicasManager. Apache's broker takes over a role that anybody sends it by
request 1008. Here this request only makes the broker ask the controller.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.file_errors import advice_for
from rmq_remoting.errors import BodyError, HeaderDecodeError, HeaderError
from rmq_remoting.headers.namesrv import BrokerHeartbeatRequestHeader

from .controllers import ControllerRefused, ControllerUnavailable
from .identity import Application
from .role import LogState, Role, SyncState

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings
    from .controllers import Controllers
    from .identity import IdentityFiles

log = logging.getLogger("rmq.broker.controller")

# The pause after an attempt that failed.
_RETRY_SECONDS: Final = 1.0
_NEXT_ATTEMPT: Final = re.compile(r"; next attempt in \d+\.\d+ s")
_UNKNOWN_ID: Final = frozenset(
    {ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST}
)
EXPECTED: Final = (ControllerUnavailable, ControllerRefused, HeaderError, HeaderDecodeError, BodyError)


class RoleUnacceptable(Exception):
    """The controller gave a role that would lose messages."""


class GroupMember:
    """Keeps `role` up to date until cancelled; belongs to the loop's thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        address: str,
        controllers: Controllers,
        files: IdentityFiles,
        now_ms: ClockMs,
    ) -> None:
        """`address`: where clients and the controller reach this broker."""
        self._settings = settings
        self._address = address
        self._files = files
        self._now_ms = now_ms
        self.controllers = controllers
        self.broker_id: int | None = None
        self.role: Role | None = None
        self.problem = ""  # why the controller cannot be asked; empty while it answers
        self.role_changes = 0
        self.change_seconds = 0.0  # how long the broker took for the last change of its role
        # Returns the state of the log, for elections.
        self.log_state: Callable[[], LogState] = LogState
        self._listeners: tuple[Callable[[Role], None], ...] = ()
        self._wake = asyncio.Event()
        self._is_registered = False

    # --- for the broker ---

    def load(self) -> None:
        """Read this broker's id. Raises StartError, OSError; blocks."""
        self.broker_id = self._files.load()
        self._files.load_application()

    def add_listener(self, listener: Callable[[Role], None]) -> None:
        """Call `listener` with each new role or in-sync set."""
        self._listeners += (listener,)

    def remove_listener(self, listener: Callable[[Role], None]) -> None:
        """Call `listener` no longer."""
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def wake(self) -> None:
        """Ask the controller soon: somebody says that the master has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Register, send heartbeats and follow the controller's decisions. Raises StartError, OSError."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat(), name="controller heartbeats")
            tasks.create_task(self._look_for_leader(), name="controller leader")
            tasks.create_task(self._follow(), name="controller roles")

    async def alter_sync_state(self, members: frozenset[int], before: SyncState) -> SyncState:
        """Replace the in-sync set of this master. Raises ControllerUnavailable, ControllerRefused."""
        role = self.role
        assert role is not None
        state = await self.controllers.alter_sync_state(role.own_id, role.epoch, members, before.epoch)
        if self.role == role:
            self._set(replace(role, sync_state=state))
        return state

    # --- heartbeats ---

    async def _beat(self) -> None:
        while True:
            await self._send_heartbeat()
            await asyncio.sleep(self._settings.broker_heartbeat_interval_ms / 1000)

    async def _send_heartbeat(self) -> None:
        if self.broker_id is None:
            return
        state, settings = self.log_state(), self._settings
        header = BrokerHeartbeatRequestHeader(
            broker_addr=self._address,
            broker_id=self.broker_id,
            broker_name=settings.broker_name,
            cluster_name=settings.broker_cluster_name,
            confirm_offset=state.confirmed,
            election_priority=settings.broker_election_priority,
            epoch=state.epoch,
            heartbeat_timeout_ms=settings.controller_heartbeat_timeout_ms,
            max_offset=state.end,
        )
        request = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header.encode())
        await self.controllers.heartbeat(request, settings.broker_heartbeat_interval_ms / 1000)

    async def _look_for_leader(self) -> None:
        """Look for the leader regularly, which may have changed without refusing a request."""
        while True:
            await asyncio.sleep(self._settings.sync_controller_metadata_period_ms / 1000)
            await self.controllers.resolve()
            try:
                await self.controllers.find_leader()
            except ControllerUnavailable as error:
                self._failed(str(error))

    # --- the role ---

    async def _follow(self) -> None:
        await self.controllers.resolve()
        while True:
            self._wake.clear()
            pause = self._settings.sync_broker_metadata_period_ms / 1000
            try:
                if not self._is_registered:
                    await self._register()
                else:
                    await self._look()
                self._works()
            except (*EXPECTED, RoleUnacceptable) as error:
                self._failed(str(error))
                pause = min(pause, _RETRY_SECONDS)
            except OSError as error:
                self._failed(f"the id cannot be written: {error}{advice_for(error)}")
            await self._pause(pause)

    async def _register(self) -> None:
        if self.broker_id is None:
            self.broker_id = await self._obtain_id()
        try:
            master = await self.controllers.register(self.broker_id, self._address)
        except ControllerRefused as error:
            if error.code in _UNKNOWN_ID:
                raise ControllerUnavailable(
                    f"the controller {self.controllers.leader} does not know broker id {self.broker_id} of "
                    f"{self._settings.broker_name} ({error}). Did it lose its data, or is it the controller "
                    "of another cluster? Restore its data or correct controllerAddr. To register anew, stop "
                    f"all brokers of the group, remove {self._files.path.name} and epochFileCheckpoint from "
                    "their stores, and start the one first whose log is to be kept"
                ) from error
            raise
        # An election considers only brokers whose heartbeats have come.
        await self._send_heartbeat()
        self._take(master or await self._elect())
        self._is_registered = True

    async def _obtain_id(self) -> int:
        """Apply for an id until one is accepted; it is durable then."""
        files, controllers = self._files, self.controllers
        application = files.load_application()
        if application is None:
            broker_id = await controllers.next_broker_id()
            application = Application(broker_id, f"{self._address};{self._now_ms()}")
            files.apply(application)
        try:
            await controllers.apply_broker_id(application.broker_id, application.code)
        except ControllerRefused:
            files.drop_application()  # another broker was faster
            raise
        files.accept(application.broker_id)
        log.info("id given by the controller broker_id=%d", application.broker_id)
        return application.broker_id

    async def _look(self) -> None:
        """Ask who is the master."""
        assert self.broker_id is not None
        try:
            told = await self.controllers.master(self.broker_id)
        except ControllerRefused as error:
            if error.code in _UNKNOWN_ID:
                self._is_registered = False
            raise
        self._take(told or await self._elect())

    async def _elect(self) -> Role | None:
        assert self.broker_id is not None
        if self._settings.async_learner:
            raise ControllerUnavailable(
                "the group has no master, and asyncLearner=true: this broker waits for one"
            )
        try:
            return await self.controllers.elect(self.broker_id)
        except ControllerRefused as error:
            raise ControllerUnavailable(
                f"the group has no master, and this broker cannot become it ({error}). Start the brokers of "
                "the in-sync set, which `mqadmin getSyncStateSet` shows; `mqadmin electMaster` elects one by "
                "force. All brokers of the group need the same brokerClusterName"
            ) from error

    def _take(self, told: Role | None) -> None:
        """Take over the controller's decision. Raises RoleUnacceptable."""
        if told is None:
            return
        known = self.role
        if known is not None:
            if told.epoch < known.epoch:
                raise RoleUnacceptable(
                    f"the controller {self.controllers.leader} tells epoch {told.epoch}, and "
                    f"{known.epoch} was told before: did it lose its data?"
                )
            if told.epoch == known.epoch:
                if told.sync_state.epoch > known.sync_state.epoch:
                    self._set(replace(known, sync_state=told.sync_state))
                return
        self._check(told)
        self.role_changes += 1
        log.info(
            "role=%s epoch=%d master_id=%d master=%s broker_id=%d in_sync=%s",
            "master" if told.is_master else "replica",
            *(told.epoch, told.master_id, told.master_address, told.own_id),
            sorted(told.sync_state.members),
        )
        self._set(told)

    def _check(self, told: Role) -> None:
        """Refuse to become the master of an epoch below those of the log."""
        newest = self.log_state().epoch
        if told.is_master and told.epoch < newest:
            raise RoleUnacceptable(
                f"the controller {self.controllers.leader} makes this broker the master of epoch "
                f"{told.epoch}, and its log has epoch {newest}: the controller lost its data, or is another "
                "one. Restore its data, or correct controllerAddr. To go on with this log, stop all "
                "brokers of the group, remove epochFileCheckpoint from their stores, and start this one first"
            )

    def _set(self, role: Role) -> None:
        self.role = role
        for listener in self._listeners:
            listener(role)

    # --- inside ---

    def _failed(self, problem: str) -> None:
        problem = _NEXT_ATTEMPT.sub("", problem)  # it would differ each second
        if problem != self.problem:
            log.warning("controller not followed cause=%s; retried", problem)
        self.problem = problem

    def _works(self) -> None:
        if self.problem:
            log.info("controller followed again leader=%s", self.controllers.leader)
        self.problem = ""

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

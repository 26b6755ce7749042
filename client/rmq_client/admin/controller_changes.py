"""Changes of controllers: elections, lost brokers, settings.

Source: Apache RocketMQ 5.3.3, ControllerRequestProcessor and the commands electMaster, cleanBrokerMetadata,
getControllerConfig and updateControllerConfig of its tools.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.controller import CleanControllerBrokerDataRequestHeader, ElectMasterRequestHeader

from ..errors import ClientError, UsageError
from .arguments import at_least, checked, checked_with
from .broker_results import InSyncSet
from .controllers import ControllerAdmin
from .property_lines import parse_lines, to_lines


class ControllerChangeAdmin(ControllerAdmin):
    """Elections, lost brokers, and settings of controllers."""

    @checked_with(broker_id=at_least(1))  # a controller counts from 1, the name servers call its master 0
    async def elect_master(self, controller: str, broker_name: str, broker_id: int) -> InSyncSet:
        """Make one broker of a group the master, and return the group as the controllers know it then.

        `broker_id` is the controller's, as `in_sync_sets` shows it. The broker must be alive. It must be in
        sync, unless the controller has `enableElectUncleanMaster=true`. The present master becomes a replica.
        Raises ClientError.
        """
        header = ElectMasterRequestHeader(
            cluster_name=await self._cluster_of(broker_name),
            broker_name=broker_name,
            broker_id=broker_id,
            designate_elect=True,
            invoke_time=_now_ms(),
        )
        about = f"election of broker {broker_id} of group {broker_name}"
        leader = await self._leader(controller)
        await self._api.call(leader, RequestCode.CONTROLLER_ELECT_MASTER, header, about=about)
        group = (await self.in_sync_sets(controller, [broker_name])).get(broker_name)
        if group is None:
            raise ClientError(f"{about}: done, but controller {leader} does not know the group any more")
        return group

    @checked
    async def forget_brokers(
        self,
        controller: str,
        broker_name: str,
        broker_ids: Sequence[int] | None = None,
        *,
        cluster: str | None = None,
        alive: bool = False,
    ) -> None:
        """Let the controllers forget brokers of a group that will not return: those with these ids, or all.

        Ids are the controller's. `cluster` is that of the group, for a group that no name server knows any
        more. The controller refuses brokers that are alive. With `alive` it forgets the whole group in any
        case, so that excludes `broker_ids`. Raises ClientError.
        """
        if alive and broker_ids is not None:
            raise UsageError(
                "alive=True excludes broker_ids: the controller would forget all brokers of the group"
            )
        header = CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster or await self._cluster_of(broker_name),
            broker_name=broker_name,
            broker_controller_ids_to_clean=None if broker_ids is None else ";".join(map(str, broker_ids)),
            clean_living_broker=alive,
            invoke_time=_now_ms(),
        )
        about = f"removal of brokers of group {broker_name}"
        leader = await self._leader(controller)
        await self._api.call(leader, RequestCode.CLEAN_BROKER_DATA, header, about=about)

    @checked
    async def controller_settings(self, controller: str) -> dict[str, str]:
        """Return the settings of one controller. Raises ClientError."""
        return await self._body(
            controller,
            RequestCode.GET_CONTROLLER_CONFIG,
            None,
            f"settings of controller {controller}",
            lambda body: parse_lines(body.decode("utf-8", "replace")),
        )

    @checked
    async def update_controller_settings(self, controller: str, settings: Mapping[str, str]) -> None:
        """Change settings of one controller, by Apache's keys. Raises ClientError."""
        if not settings:
            raise UsageError("settings is empty: name at least one setting, by Apache's key")
        about, body = f"change of settings of controller {controller}", to_lines(settings).encode()
        await self._api.call(controller, RequestCode.UPDATE_CONTROLLER_CONFIG, None, body, about=about)

    async def _cluster_of(self, broker_name: str) -> str:
        """Return the cluster of a group of brokers. Raises UsageError if the name servers do not know it."""
        brokers = (await self.cluster_info()).brokers
        if broker_name not in brokers:
            known = ", ".join(sorted(brokers)) or "none"
            raise UsageError(f"the name servers know no broker {broker_name}; they know: {known}")
        return brokers[broker_name].cluster


def _now_ms() -> int:
    return int(time.time() * 1000)

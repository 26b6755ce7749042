"""Consumer groups of the master (Apache RocketMQ 5.3.3, SlaveSynchronize.syncSubscriptionGroupConfig)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.group import SubscriptionGroupWrapper
from rmq_remoting.codes import RequestCode

from ...groups.names import SELF_TEST_GROUP, SYSTEM_GROUPS, TOOLS_GROUP, is_system_group
from .master import MetadataError
from .part import require_member
from .table_age import TableAge

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from ...groups.table import SubscriptionGroupTable
    from .master import Master

log = logging.getLogger("rmq.broker.replication")

# Every broker has these. An answer without them is no whole table.
_OF_EVERY_BROKER: Final = frozenset({TOOLS_GROUP, SELF_TEST_GROUP})


class GroupPart:
    """Takes over consumer groups. Groups in use here stay although the master lacks them."""

    name = "groups"
    period_seconds = 10.0
    is_versioned = True

    def __init__(
        self, groups: SubscriptionGroupTable, age: TableAge, groups_in_use: Callable[[], Iterable[str]]
    ) -> None:
        """`groups_in_use` returns the names of groups that are in use here."""
        self._groups = groups
        self._age = age
        self._groups_in_use = groups_in_use
        # The last answer, and the version of the groups afterwards; None if there are further groups here.
        self._taken: tuple[bytes, int] | None = None

    async def sync(self, master: Master) -> None:
        """Take over the master's groups. Raises RequestError, MetadataError, BodyError."""
        body = await master.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        if self._taken == (body, self._groups.version):
            return
        answer = await asyncio.to_thread(SubscriptionGroupWrapper.decode, body)
        require_member(answer, "subscription_group_table")
        table = answer.subscription_group_table
        missing = sorted(_OF_EVERY_BROKER - table.keys())
        if missing:
            raise MetadataError(f"the answer lacks the groups {', '.join(missing)}, which every broker has")
        version = self._age.newer(answer.data_version)
        used = set(self._groups_in_use())
        gone = [name for name in self._further(table) if name not in used]
        removed = [] if version is None else gone
        changed = self._groups.follow(table.values(), answer.forbidden_table or {}, removed, version)
        if changed or removed:
            log.info(
                "consumer groups taken from the master changed=%d removed=%s master=%s",
                changed,
                ", ".join(removed) or "none",
                master.address,
            )
        self._age.tell(version, answer.data_version, gone)
        self._taken = None if self._further(table) else (body, self._groups.version)

    def master_changed(self) -> None:
        """Forget the last answer."""
        self._taken = None

    def _further(self, masters: Container[str]) -> list[str]:
        """Return the groups here that the master lacks, without system groups."""
        names = [config.group_name for config in self._groups.configs() if config.group_name not in masters]
        return [name for name in names if name not in SYSTEM_GROUPS and not is_system_group(name)]

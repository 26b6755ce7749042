"""`rmq cold`: flow control of groups that read old messages, and reading ahead."""

from __future__ import annotations

from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..session import Session
from .broker import IdOption
from .common import BrokerArgument, BrokerOption, ClusterOption, GroupArgument

app = command_group("Limit groups that read old messages from the disk.")

_COLUMNS = ("group", "period_bytes", "threshold_bytes", "adapted", "first_read", "last_read")


@command(app, "show", "rmq cold show broker-a", "rmq cold show broker-a --id 1 -o json")
def show(session: Session, broker: BrokerArgument, broker_id: IdOption = 0) -> None:
    """Show what groups read cold within 5 s, and from how many bytes on they are slowed down."""
    found = session.admin.cold_reads(broker, broker_id)
    session.out.note(
        f"{found.period_bytes} cold bytes in this period; thresholds: {found.group_threshold} of a group, "
        f"{found.total_threshold} of all together"
    )
    reading = {each.group: each for each in found.groups}
    session.out.rows(
        [
            {
                "group": group,
                "period_bytes": reading[group].period_bytes if group in reading else 0,
                "threshold_bytes": found.thresholds.get(
                    group, found.adapted.get(group, found.group_threshold)
                ),
                "adapted": group in found.adapted and group not in found.thresholds,
                "first_read": reading[group].first_read if group in reading else None,
                "last_read": reading[group].last_read if group in reading else None,
            }
            for group in sorted({*reading, *found.thresholds, *found.adapted})
        ],
        _COLUMNS,
    )


@command(
    app,
    "limit",
    "rmq cold limit till 1048576",
    "rmq cold limit reports 10485760 --broker broker-a",
    changes=True,
)
def limit(
    session: Session,
    group: GroupArgument,
    threshold: Annotated[
        int, typer.Argument(metavar="BYTES", min=0, help="Cold bytes within 5 s that the group may read.")
    ],
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Give a group a threshold of its own, until the brokers stop."""
    if session.may(f"limit group {group} to {threshold} cold bytes in 5 s"):
        session.admin.set_cold_read_threshold(group, threshold, cluster=cluster, broker_name=broker)
        session.out.note(f"group {group} may read {threshold} cold bytes in 5 s")


@command(app, "unlimit", "rmq cold unlimit till", changes=True)
def unlimit(
    session: Session, group: GroupArgument, cluster: ClusterOption = None, broker: BrokerOption = None
) -> None:
    """Let the common threshold apply to a group again."""
    if session.may(f"remove the threshold of group {group}"):
        session.admin.remove_cold_read_threshold(group, cluster=cluster, broker_name=broker)
        session.out.note(f"group {group} has the common threshold")


@command(
    app, "read-ahead", "rmq cold read-ahead off --broker broker-a", "rmq cold read-ahead on", changes=True
)
def read_ahead(
    session: Session,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="on or off.")],
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Let brokers read the log ahead of consumers, or not, until they stop."""
    if mode not in ("on", "off"):
        raise CommandFailed(f"{mode!r}: write on or off", Exit.USAGE)
    if session.may(f"switch reading ahead {mode} on {broker or cluster or 'all masters'}"):
        done = session.admin.set_read_ahead(mode == "on", cluster=cluster, broker_name=broker)
        session.out.note(f"reading ahead is {mode} on {', '.join(done)}")

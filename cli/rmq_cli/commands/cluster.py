"""`rmq cluster`: the clusters of the name servers, with the load of their brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from ..declaring import command, command_group
from ..output import Row
from ..session import Session

app = command_group("Show the clusters, with the load of their brokers.")

ControllerArgument = Annotated[
    str, typer.Argument(metavar="CONTROLLER", help="Address of a controller, HOST:PORT.")
]
BrokersOption = Annotated[
    list[str] | None, typer.Option("--broker", help="Only this broker; may be repeated.")
]

_COLUMNS = (
    "cluster",
    "broker",
    "address",
    "version",
    "in_per_second",
    "out_per_second",
    "disk_used",
    "replicas",
)


@command(app, "list", "rmq cluster list")
def list_clusters(session: Session) -> None:
    """List the clusters and their brokers."""
    info = session.admin.cluster_info()
    session.out.rows(
        [{"cluster": name, "brokers": list(brokers)} for name, brokers in info.clusters.items()],
        ("cluster", "brokers"),
    )


@command(
    app,
    "in-sync",
    "rmq cluster in-sync 10.0.0.1:9878",
    "rmq cluster in-sync 10.0.0.1:9878 --broker broker-a -o json",
)
def in_sync(session: Session, controller: ControllerArgument, broker: BrokersOption = None) -> None:
    """Show master and in-sync replicas of each group of brokers with a controller."""
    found = session.admin.in_sync_sets(controller, broker or None)
    session.out.rows(
        [
            {
                "broker": name,
                "id": member.broker_id,
                "address": member.address,
                "role": "master" if member.broker_id == group.master_id else "replica",
                "in_sync": member.in_sync,
                "alive": member.alive,
                "master_epoch": group.master_epoch,
                "set_epoch": group.epoch,
            }
            for name, group in found.items()
            for member in group.members
        ],
        ("broker", "id", "address", "role", "in_sync", "alive", "master_epoch", "set_epoch"),
    )


@command(app, "controller", "rmq cluster controller 10.0.0.1:9878")
def controller_state(session: Session, controller: ControllerArgument) -> None:
    """Show what a controller says about itself, and which one leads."""
    found = session.admin.controller_state(controller)
    session.out.record(
        {
            "group": found.group,
            "leads": found.is_leader,
            "leader": found.leader_id,
            "leader_address": found.leader_address,
            "peers": found.peers,
        }
    )


@command(app, "status", "rmq cluster status", "rmq cluster status -o csv")
def status(session: Session) -> None:
    """Show version, throughput and disk use of every master."""
    admin = session.admin
    rows: list[Row] = []
    for name, broker in admin.cluster_info().brokers.items():
        if broker.master is None:
            rows.append({"cluster": broker.cluster, "broker": name, "address": "no master"})
            continue
        table = admin.broker_status(name)
        rows.append(
            {
                "cluster": broker.cluster,
                "broker": name,
                "address": broker.master,
                "version": table.get("brokerVersionDesc"),
                "in_per_second": _first_number(table.get("putTps")),
                "out_per_second": _first_number(table.get("getTransferredTps")),
                "disk_used": _percent(table.get("commitLogDiskRatio")),
                "replicas": len(broker.addresses) - 1,
            }
        )
    session.out.rows(rows, _COLUMNS)


def _first_number(text: str | None) -> float | None:
    """Return the first of several rates: that of the last ten seconds."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None


def _percent(text: str | None) -> str | None:
    try:
        return f"{float(text or ''):.0%}"
    except ValueError:
        return None

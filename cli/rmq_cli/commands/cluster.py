"""`rmq cluster`: the clusters of the name servers, with the load of their brokers, and controllers."""

from __future__ import annotations

from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..output import Row
from ..session import Session
from .common import BrokerArgument, pairs_of

app = command_group("Show the clusters, with the load of their brokers, and their controllers.")

ControllerArgument = Annotated[
    str, typer.Argument(metavar="CONTROLLER", help="Address of a controller, HOST:PORT.")
]
IdArgument = Annotated[
    int, typer.Argument(min=1, metavar="ID", help="Id of the broker, as `in-sync` shows it.")
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


@command(
    app,
    "elect",
    "rmq cluster elect 10.0.0.1:9878 broker-a 2 --dry-run",
    "rmq cluster elect 10.0.0.1:9878 broker-a 2 --yes",
    destroys=True,
)
def elect(
    session: Session, controller: ControllerArgument, broker: BrokerArgument, number: IdArgument
) -> None:
    """Make one broker of a group with a controller the master."""
    found = session.admin.in_sync_sets(controller, [broker])
    if broker not in found:
        raise CommandFailed(f"controller {controller} knows no group {broker}", Exit.NOT_FOUND)
    old = found[broker].master_id
    if session.may_destroy(f"make broker {number} the master of group {broker}, whose master is {old}"):
        group = session.admin.elect_master(controller, broker, number)
        session.out.note(f"broker {group.master_id} is the master of group {broker}")


@command(
    app,
    "forget",
    "rmq cluster forget 10.0.0.1:9878 broker-a --id 3 --dry-run",
    "rmq cluster forget 10.0.0.1:9878 broker-a --cluster DefaultCluster --yes",
    destroys=True,
)
def forget(
    session: Session,
    controller: ControllerArgument,
    broker: BrokerArgument,
    ids: Annotated[
        list[int] | None, typer.Option("--id", min=1, help="Only the broker with this id; may be repeated.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster of the group, if no name server knows the group any more.")
    ] = None,
    alive: Annotated[
        bool, typer.Option("--alive", help="The whole group, even if it is alive; excludes --id.")
    ] = False,
) -> None:
    """Let controllers forget brokers of a group that will not return."""
    if ids and alive:
        raise CommandFailed("--alive does not go with --id: it lets the whole group be forgotten", Exit.USAGE)
    what = f"brokers {', '.join(map(str, ids))}" if ids else "all brokers"
    if session.may_destroy(f"let the controllers forget {what} of group {broker}"):
        session.admin.forget_brokers(controller, broker, ids or None, cluster=cluster, alive=alive)
        session.out.note(f"the controllers have forgotten {what} of group {broker}")


@command(app, "controller-settings", "rmq cluster controller-settings 10.0.0.1:9878 -o json")
def controller_settings(session: Session, controller: ControllerArgument) -> None:
    """Show the settings of a controller."""
    session.out.record(dict(sorted(session.admin.controller_settings(controller).items())))


@command(
    app,
    "controller-set",
    "rmq cluster controller-set 10.0.0.1:9878 scanNotActiveBrokerInterval=3000",
    changes=True,
)
def change_controller(
    session: Session,
    controller: ControllerArgument,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings by Apache's keys.")],
) -> None:
    """Change settings of a running controller."""
    wanted = pairs_of(pairs, "setting")
    if session.may(f"set {', '.join(pairs)} in controller {controller}"):
        session.admin.update_controller_settings(controller, wanted)
        session.out.note(f"controller {controller} is changed")


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

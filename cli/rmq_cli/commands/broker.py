"""`rmq broker`: brokers, their settings, state, statistics and replication."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..output import counted
from ..session import Session
from .common import BrokerArgument, BrokerOption, ClusterOption, pairs_of

app = command_group("Show and change brokers: settings, state, statistics and replication.")

IdOption = Annotated[int, typer.Option("--id", min=0, help="0 is the master, others are replicas.")]


@command(app, "list", "rmq broker list", "rmq broker list -o json")
def list_brokers(session: Session) -> None:
    """List all brokers with their addresses."""
    info = session.admin.cluster_info()
    session.out.rows(
        [
            {
                "cluster": broker.cluster,
                "broker": name,
                "id": number,
                "role": "replica" if number else "master",
                "address": address,
            }
            for name, broker in info.brokers.items()
            for number, address in broker.addresses.items()
        ],
        ("cluster", "broker", "id", "role", "address"),
    )


@command(app, "status", "rmq broker status broker-a", "rmq broker status broker-a --id 1 -o json")
def status(session: Session, broker: BrokerArgument, broker_id: IdOption = 0) -> None:
    """Show the state of a broker: throughput, disk, queues, versions."""
    session.out.record(session.admin.broker_status(broker, broker_id))


@command(app, "runtime", "rmq broker runtime broker-a", "rmq broker runtime broker-a -o json")
def runtime(session: Session, broker: BrokerArgument, broker_id: IdOption = 0) -> None:
    """Show what a broker has done since its start, and does now."""
    found = session.admin.broker_runtime(broker, broker_id)
    record: dict[str, object] = {
        field.name: getattr(found, field.name) for field in fields(found) if field.name != "requests"
    }
    for kind, each in found.requests.items():
        record[f"{kind}_waiting"] = each.waiting
        record[f"{kind}_longest_wait_seconds"] = each.longest_wait_seconds
    session.out.record(record)


@command(app, "epochs", "rmq broker epochs broker-a", "rmq broker epochs broker-a --id 2 -o csv")
def epochs(session: Session, broker: BrokerArgument, broker_id: IdOption = 0) -> None:
    """Show which master wrote which part of a broker's log, with a controller."""
    found = session.admin.broker_epochs(broker, broker_id)
    session.out.note(f"broker {found.broker_name}, id {found.broker_id}; log end {found.log_end}")
    session.out.rows(
        [{"epoch": each.epoch, "start": each.start, "end": each.end} for each in found.epochs],
        ("epoch", "start", "end"),
    )


@command(app, "settings", "rmq broker settings broker-a", "rmq broker settings broker-a --match flush -o csv")
def settings(
    session: Session,
    broker: BrokerArgument,
    broker_id: IdOption = 0,
    match: Annotated[str, typer.Option(help="Only keys that contain this, in any case.")] = "",
) -> None:
    """Show the settings of a broker."""
    found = session.admin.broker_settings(broker, broker_id)
    session.out.record({key: found[key] for key in sorted(found) if match.lower() in key.lower()})


@command(app, "set", "rmq broker set broker-a longPollingMaxHoldMillis=20000", changes=True)
def change_settings(
    session: Session,
    broker: BrokerArgument,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings by Apache's keys.")],
    broker_id: IdOption = 0,
) -> None:
    """Change settings of a running broker."""
    wanted = pairs_of(pairs, "setting")
    if session.may(f"set {', '.join(pairs)} in broker {broker}"):
        session.admin.update_broker_settings(broker, wanted, broker_id)
        session.out.note(f"broker {broker} is changed")


@command(
    app,
    "stats",
    "rmq broker stats broker-a TOPIC_PUT_NUMS orders",
    "rmq broker stats broker-a GROUP_GET_NUMS orders@till",
)
def stats(
    session: Session,
    broker: BrokerArgument,
    statistic: Annotated[str, typer.Argument(metavar="STATISTIC", help="Apache's name of it.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A topic, TOPIC@GROUP or the cluster's name.")],
) -> None:
    """Show a statistic over the last minute, hour and day."""
    found = session.admin.broker_figures(broker, statistic, key)
    session.out.rows(
        [
            {"period": period, "sum": each.sum, "per_second": each.per_second, "per_call": each.per_call}
            for period, each in (("minute", found.minute), ("hour", found.hour), ("day", found.day))
            if each is not None
        ],
        ("period", "sum", "per_second", "per_call"),
    )


@command(app, "replication", "rmq broker replication broker-a")
def replication(session: Session, broker: BrokerArgument, broker_id: IdOption = 0) -> None:
    """Show the replicas of a master and how far they are behind, or the state of a replica."""
    found = session.admin.replication_status(broker, broker_id)
    if not found.is_master:
        session.out.record(
            {
                "role": "replica",
                "master": found.master_address,
                "log_end": found.log_end,
                "last_read": found.last_read,
                "bytes_per_second": found.bytes_per_second,
            }
        )
        return
    session.out.note(f"master; log end {found.log_end}; {found.in_sync} replicas in sync")
    session.out.rows(
        [
            {
                "replica": each.address,
                "in_sync": each.in_sync,
                "behind_bytes": each.behind_bytes,
                "acknowledged_offset": each.acknowledged_offset,
                "bytes_per_second": each.bytes_per_second,
            }
            for each in found.replicas
        ],
        ("replica", "in_sync", "behind_bytes", "acknowledged_offset", "bytes_per_second"),
    )


_CLEANINGS = {"queues": "expired queues", "topics": "unused topics", "log": "expired log"}


@command(app, "clean", "rmq broker clean log --broker broker-a --yes", destroys=True)
def clean(
    session: Session,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="queues, topics or log.")],
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Delete expired queue files, unused topics or expired log files now."""
    if what not in _CLEANINGS:
        raise CommandFailed(f"{what!r}: write {', '.join(_CLEANINGS)}", Exit.USAGE)
    if session.may_destroy(f"delete the {_CLEANINGS[what]} of {broker or cluster or 'all masters'}"):
        done = session.admin.clean_brokers(_CLEANINGS[what], cluster=cluster, broker_name=broker)
        session.out.note(f"{_CLEANINGS[what]}: deleted on {', '.join(done)}")


@command(app, "drain", "rmq broker drain broker-a --yes", destroys=True)
def drain(session: Session, broker: BrokerArgument) -> None:
    """Keep producers away from a broker, for its maintenance. Consumers go on."""
    if session.may_destroy(f"withdraw the write permission of all topics of broker {broker}"):
        count = session.admin.wipe_write_permission(broker)
        topics = counted(count, "topic")
        session.out.note(f"made {topics} of broker {broker} read-only; producers follow within 30 s")


@command(app, "undrain", "rmq broker undrain broker-a", changes=True)
def undrain(session: Session, broker: BrokerArgument) -> None:
    """Let producers use a broker again."""
    if session.may(f"restore the write permission of all topics of broker {broker}"):
        count = session.admin.add_write_permission(broker)
        session.out.note(f"made {counted(count, 'topic')} of broker {broker} writable again")

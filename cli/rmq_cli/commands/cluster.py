"""`rmq cluster`: the clusters of the name servers, with the load of their brokers."""

from __future__ import annotations

from ..declaring import command, command_group
from ..output import Row
from ..session import Session

app = command_group("Show the clusters, with the load of their brokers.")

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

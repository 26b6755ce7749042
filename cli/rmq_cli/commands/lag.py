"""`rmq lag`: how far groups are behind, once or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from rmq_client import GroupLag

from ..declaring import command
from ..exits import CommandFailed, Exit
from ..output import Format, Row, table_of
from ..session import Session
from ..times import parse_duration

_BY_TOPIC = ("group", "topic", "queues", "lag", "in_flight", "consumed_per_second", "seconds_behind")
_BY_QUEUE = ("group", "topic", "broker", "queue", "committed", "end", "lag", "seconds_behind")


def add_lag(app: typer.Typer) -> None:
    """Add the command to the root."""
    command(
        app,
        "lag",
        "rmq lag",
        "rmq lag till --queues",
        "rmq lag --watch 2s",
        "rmq lag till --fail-above 10000 -o json",
    )(lag)


def lag(
    session: Session,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Only this group.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic; needs GROUP.")] = None,
    queues: Annotated[bool, typer.Option("--queues", help="A row for each queue.")] = False,
    watch: Annotated[str | None, typer.Option(help="Refresh in this interval: 2s, 1m.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this number of refreshes.")] = None,
    fail_above: Annotated[
        int | None, typer.Option(min=0, help="Exit with 6 if the lag of a group is above this.")
    ] = None,
) -> None:
    """Show how many messages groups have not consumed."""
    if topic is not None and group is None:
        raise CommandFailed("--topic needs a group", Exit.USAGE)
    columns = _BY_QUEUE if queues else _BY_TOPIC

    def ask() -> list[GroupLag]:
        return session.admin.lags() if group is None else [session.admin.lag(group, topic)]

    def rows(found: Iterable[GroupLag]) -> list[Row]:
        return [row for each in found for row in (_queue_rows(each) if queues else _topic_rows(each))]

    if watch is None:
        found = ask()
        session.out.rows(rows(found), columns)
    else:
        pause = parse_duration(watch)
        found = ask()
        times = 1
        is_live = session.out.form is Format.TABLE and session.out.console.is_terminal
        with Live(
            console=session.out.console if is_live else Console(quiet=True), auto_refresh=False
        ) as live:
            while True:
                if is_live:
                    live.update(table_of(rows(found), columns), refresh=True)
                elif session.out.form is Format.JSON:
                    session.out.json({"time": datetime.now(UTC), "rows": rows(found)})
                else:
                    session.out.rows(rows(found), columns, with_names=times == 1)
                    sys.stdout.flush()
                if times == count:
                    break
                times += 1
                time.sleep(pause)
                found = ask()
    too_much = [each for each in found if fail_above is not None and each.total > fail_above]
    if too_much:
        told = ", ".join(f"{each.group} {each.total}" for each in too_much)
        raise CommandFailed(f"lag above {fail_above}: {told}", Exit.CONDITION)


def _topic_rows(lag: GroupLag) -> list[Row]:
    topics = sorted({each.queue.topic for each in lag.queues})
    rows: list[Row] = []
    for topic in topics:
        queues = [each for each in lag.queues if each.queue.topic == topic]
        rows.append(
            {
                "group": lag.group,
                "topic": topic,
                "queues": len(queues),
                "lag": sum(each.lag for each in queues),
                "in_flight": sum(each.in_flight for each in queues),
                # Brokers tell the rate of the group in all its topics.
                "consumed_per_second": lag.consumed_per_second if len(topics) == 1 else None,
                "seconds_behind": max(
                    (_seconds_behind(each.lag, each.consumed_until) or 0.0 for each in queues), default=0.0
                ),
            }
        )
    return rows


def _queue_rows(lag: GroupLag) -> list[Row]:
    return [
        {
            "group": lag.group,
            "topic": each.queue.topic,
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "committed": each.committed,
            "end": each.end,
            "lag": each.lag,
            "seconds_behind": _seconds_behind(each.lag, each.consumed_until),
        }
        for each in lag.queues
    ]


def _seconds_behind(lag: int, consumed_until: datetime | None) -> float | None:
    """Return the age of the last consumed message if others wait; None if brokers know no time."""
    if not lag:
        return 0.0
    return None if consumed_until is None else (datetime.now(UTC) - consumed_until).total_seconds()

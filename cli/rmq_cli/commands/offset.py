"""`rmq offset`: show, reset, skip and copy the offsets of groups."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypedDict

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..session import Session
from ..times import TIME_HELP, parse_time
from .common import OFFSET_CHANGES, GroupArgument, TopicArgument, offset_change_row, queue_of

app = command_group("Show, reset, skip and copy the offsets of groups.")


@command(app, "show", "rmq offset show till", "rmq offset show till --topic orders -o json")
def show(
    session: Session,
    group: GroupArgument,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
) -> None:
    """Show the offsets of a group in every queue."""
    lag = session.admin.lag(group, topic)
    session.out.rows(
        [
            {
                "topic": each.queue.topic,
                "broker": each.queue.broker_name,
                "queue": each.queue.queue_id,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "in_flight": each.in_flight,
                "consumed_until": each.consumed_until,
            }
            for each in lag.queues
        ],
        ("topic", "broker", "queue", "committed", "end", "lag", "in_flight", "consumed_until"),
    )


@command(
    app,
    "reset",
    "rmq offset reset till orders --to 2h --dry-run",
    "rmq offset reset till orders --to earliest --yes",
    "rmq offset reset till orders --queue broker-a:0 --to-offset 1200 --yes",
    destroys=True,
)
def reset(
    session: Session,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[str | None, typer.Option("--to", help=f"earliest, latest, {TIME_HELP}.")] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="An offset, in the queue of --queue.")] = None,
    queue: Annotated[str | None, typer.Option(help="BROKER:ID, with --to-offset.")] = None,
) -> None:
    """Reset a group to a time, an end or an offset. Running consumers go on at the new offsets."""
    admin = session.admin
    if (to is None) == (to_offset is None) or (to_offset is None) != (queue is None):
        raise CommandFailed("give either --to, or --queue with --to-offset", Exit.USAGE)
    if to_offset is not None and queue is not None:
        place = queue_of(topic, queue)
        changes = [admin.reset_queue_offset(group, place, to_offset, dry_run=True)]
    else:
        target = _target(to or "")
        changes = admin.reset_offsets(group, topic, dry_run=True, **target)
    moved = sum(change.before != change.after for change in changes)
    if session.may_destroy(f"reset group {group} in {moved} of {len(changes)} queues of topic {topic}"):
        if to_offset is not None and queue is not None:
            changes = [admin.reset_queue_offset(group, place, to_offset)]
        else:
            changes = admin.reset_offsets(group, topic, **target)
    session.out.rows(map(offset_change_row, changes), OFFSET_CHANGES)


@command(
    app, "skip", "rmq offset skip till orders --dry-run", "rmq offset skip till orders --yes", destroys=True
)
def skip(session: Session, group: GroupArgument, topic: TopicArgument) -> None:
    """Let a group skip all messages that it has not consumed."""
    changes = session.admin.skip_backlog(group, topic, dry_run=True)
    skipped = sum(change.after - (change.before or 0) for change in changes)
    if session.may_destroy(f"let group {group} skip {skipped} messages of topic {topic}"):
        changes = session.admin.skip_backlog(group, topic)
    session.out.rows(map(offset_change_row, changes), OFFSET_CHANGES)


@command(app, "clone", "rmq offset clone till till-2 orders", destroys=True)
def clone(
    session: Session,
    source: Annotated[str, typer.Argument(metavar="FROM", help="Group to copy from.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Group to copy to; stop its consumers.")],
    topic: TopicArgument,
) -> None:
    """Copy the offsets of one group to another."""
    if session.may_destroy(f"set the offsets of group {target} in topic {topic} to those of {source}"):
        changes = session.admin.clone_offsets(source, target, topic)
        session.out.rows(map(offset_change_row, changes), OFFSET_CHANGES)


@command(app, "search", "rmq offset search orders 2026-11-26T18:00", "rmq offset search orders 1h")
def search(
    session: Session,
    topic: TopicArgument,
    time: Annotated[str, typer.Argument(metavar="TIME", help=f"{TIME_HELP}.")],
) -> None:
    """Show the offset in each queue of the first message stored at a time or later."""
    admin, wanted = session.admin, parse_time(time)
    rows = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "offset": admin.search_offset(queue, wanted),
        }
        for queue in admin.topic_route(topic).read_queues
    ]
    session.out.rows(rows, ("broker", "queue", "offset"))


class _Target(TypedDict, total=False):
    """Where a reset goes, by the parameters of Admin.reset_offsets."""

    to_earliest: bool
    to_latest: bool
    to_time: datetime


def _target(to: str) -> _Target:
    if to == "earliest":
        return {"to_earliest": True}
    return {"to_latest": True} if to == "latest" else {"to_time": parse_time(to)}

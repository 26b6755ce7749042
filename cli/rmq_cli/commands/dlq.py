"""`rmq dlq`: dead letters, listed and sent again."""

from __future__ import annotations

from typing import Annotated

import typer

from rmq_client import MessageExt, origin_topic

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..messages import COLUMNS, message_record, message_row
from ..output import Format, counted
from ..progress import progress_of
from ..session import Session
from ..times import parse_time
from .common import GroupArgument
from .message import SinceOption, UntilOption

app = command_group("List dead letters, and send them again.")

_MOST = 1_000_000


@command(app, "list", "rmq dlq list")
def list_counts(session: Session) -> None:
    """List the groups that have dead letters, and how many."""
    counts = session.admin.dead_letter_counts()
    session.out.rows(
        [{"group": group, "dead_letters": count} for group, count in counts.items()],
        ("group", "dead_letters"),
    )


@command(app, "show", "rmq dlq show till", "rmq dlq show till --since 1d -o json")
def show(
    session: Session,
    group: GroupArgument,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number; the oldest count.")] = 100,
) -> None:
    """List the dead letters of a group, with the topics that they came from."""
    found = _letters(session, group, since, until, limit)
    if session.out.form is Format.JSON:
        session.out.json([{**message_record(each), "origin": origin_topic(each)} for each in found])
        return
    is_csv = session.out.form is Format.CSV
    rows = [{**message_row(each, whole=is_csv), "origin": origin_topic(each)} for each in found]
    session.out.rows(rows, (*COLUMNS[:4], "origin", *COLUMNS[4:]))


@command(
    app,
    "resend",
    "rmq dlq resend till 7F0000010BD718B4AAC2 --yes",
    "rmq dlq resend till --all --since 1d --dry-run",
    "rmq dlq resend till --all --to-topic orders --yes",
    destroys=True,
)
def resend(
    session: Session,
    group: GroupArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of dead letters.")] = None,
    all_letters: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    to_topic: Annotated[
        str | None,
        typer.Option(help="Send to this topic, whose other groups get them, too; for POP consumers."),
    ] = None,
) -> None:
    """Send dead letters again, to the consumers of their group. They also stay dead letters."""
    if bool(ids) == all_letters:
        raise CommandFailed("give the ids of dead letters, or --all", Exit.USAGE)
    found = _letters(session, group, since, until, _MOST)
    if ids:
        by_id = {each.msg_id: each for each in found} | {each.offset_msg_id: each for each in found}
        missing = [each for each in ids if each not in by_id]
        if missing:
            raise CommandFailed(f"group {group} has no dead letter {', '.join(missing)}", Exit.NOT_FOUND)
        found = [by_id[each] for each in ids]
    where = f"topic {to_topic}" if to_topic else f"group {group}"
    if not session.may_destroy(
        f"send {counted(len(found), 'dead letter')} of group {group} again to {where}"
    ):
        return
    for letter in progress_of(found, "sending"):
        session.admin.resend_dead_letter(letter, to_topic=to_topic)
    session.out.note(f"sent {counted(len(found), 'dead letter')} again to {where}")


def _letters(
    session: Session, group: str, since: str | None, until: str | None, limit: int
) -> list[MessageExt]:
    return session.admin.dead_letters(
        group,
        begin=None if since is None else parse_time(since),
        end=None if until is None else parse_time(until),
        max_messages=limit,
    )

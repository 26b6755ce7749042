"""`rmq message`: find messages by id, key and time, and see what became of them."""

from __future__ import annotations

from typing import Annotated

import typer

from rmq_client import MessageExt

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..messages import COLUMNS, message_record, message_row
from ..output import Format
from ..session import Session
from ..times import TIME_HELP, parse_time
from .common import TopicArgument, the_message

app = command_group("Find messages by id, key and time, and see what became of them.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the message, of either kind.")]
SinceOption = Annotated[str | None, typer.Option("--since", help=f"Stored from then on: {TIME_HELP}.")]
UntilOption = Annotated[str | None, typer.Option("--until", help="Stored before then.")]


@command(app, "get", "rmq message get orders 7F0000010BD718B4AAC2", "rmq message get orders ID -o json")
def get(session: Session, topic: TopicArgument, message_id: IdArgument) -> None:
    """Show a message with all its properties."""
    session.out.record(message_record(the_message(session.admin, topic, message_id)))


@command(app, "query", "rmq message query orders 4711", "rmq message query orders 4711 --since 2h")
def query(
    session: Session,
    topic: TopicArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key of the messages.")],
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number; the newest count.")] = 32,
) -> None:
    """List the messages with a key."""
    found = session.admin.query_messages(
        topic,
        key,
        begin=None if since is None else parse_time(since),
        end=None if until is None else parse_time(until),
        max_messages=limit,
    )
    show_messages(session, found.messages)
    for broker, error in found.failures.items():
        session.out.note(f"broker {broker} could not be asked: {error}")
    if found.failures:
        raise CommandFailed("the list is incomplete", Exit.UNREACHABLE)


@command(
    app,
    "list",
    "rmq message list orders --since 10m",
    "rmq message list orders --since 2026-11-26T08:00 --until 2026-11-26T09:00 --tag paid -o json",
)
def list_messages(
    session: Session,
    topic: TopicArgument,
    since: SinceOption = None,
    until: UntilOption = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only these tags: 'a || b'.")] = None,
    sql: Annotated[str | None, typer.Option(help="Only messages with such properties (SQL92).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number; the oldest count.")] = 100,
) -> None:
    """List the messages of a topic by the time of their storage, without a group."""
    expression, kind = filter_of(tag, sql)
    found = session.admin.messages_between(
        topic,
        begin=None if since is None else parse_time(since),
        end=None if until is None else parse_time(until),
        expression=expression,
        expression_type=kind,
        max_messages=limit,
    )
    show_messages(session, found)


@command(app, "track", "rmq message track orders 7F0000010BD718B4AAC2")
def track(session: Session, topic: TopicArgument, message_id: IdArgument) -> None:
    """Show which groups have consumed a message."""
    tracks = session.admin.track_message(the_message(session.admin, topic, message_id))
    session.out.rows([{"group": each.group, "status": each.status} for each in tracks], ("group", "status"))


@command(app, "deliver", "rmq message deliver orders ID --group till --client 10.0.0.7@4711#1", changes=True)
def deliver(
    session: Session,
    topic: TopicArgument,
    message_id: IdArgument,
    group: Annotated[str, typer.Option(help="Group of the consumer.")],
    client: Annotated[str, typer.Option(help="Client id, as `rmq group members` lists it.")],
) -> None:
    """Let one running consumer consume a message now. Offsets stay as they are."""
    message = the_message(session.admin, topic, message_id)
    if not session.may(f"give message {message_id} to consumer {client} of group {group}"):
        return
    delivery = session.admin.deliver_message(group, client, message)
    session.out.record({"result": delivery.result, "seconds": delivery.seconds, "remark": delivery.remark})
    if not delivery.succeeded:
        raise CommandFailed(f"the consumer answered {delivery.result}", Exit.CONDITION)


def show_messages(session: Session, messages: list[MessageExt]) -> None:
    """Write messages: with all their properties in JSON."""
    if session.out.form is Format.JSON:
        session.out.json([message_record(message) for message in messages])
    else:
        is_csv = session.out.form is Format.CSV
        session.out.rows([message_row(message, whole=is_csv) for message in messages], COLUMNS)


def filter_of(tag: str | None, sql: str | None) -> tuple[str, str]:
    """Return an expression and its type. Raises CommandFailed for two filters."""
    if tag is not None and sql is not None:
        raise CommandFailed("give --tag or --sql, not both", Exit.USAGE)
    return (sql, "SQL92") if sql is not None else (tag or "*", "TAG")

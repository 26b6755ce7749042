"""`rmq trace`: what happened to a message, by the traces of producers and consumers."""

from __future__ import annotations

from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..session import Session
from ..times import parse_time
from .message import IdArgument, SinceOption, UntilOption

app = command_group("Show what happened to a message, by the traces of producers and consumers.")

_KINDS = {
    "Pub": "sent",
    "SubBefore": "consumption begins",
    "SubAfter": "consumption ends",
    "EndTransaction": "transaction ends",
    "Recall": "recalled",
}


@command(app, "show", "rmq trace show 7F0000010BD718B4AAC2", "rmq trace show ID --topic my-traces -o json")
def show(
    session: Session,
    message_id: IdArgument,
    topic: Annotated[str, typer.Option(help="Topic of the traces.")] = "RMQ_SYS_TRACE_TOPIC",
    since: SinceOption = None,
    until: UntilOption = None,
) -> None:
    """Show the trace of a message, by the id that its producer gave it."""
    events = session.admin.message_trace(
        message_id,
        trace_topic=topic,
        begin=None if since is None else parse_time(since),
        end=None if until is None else parse_time(until),
    )
    if not events:
        raise CommandFailed(
            f"no trace of message {message_id} in topic {topic}: are producers and consumers tracing?",
            Exit.NOT_FOUND,
        )
    session.out.rows(
        [
            {
                "time": each.time,
                "event": _KINDS.get(each.kind, each.kind),
                "group": each.group,
                "client": each.client,
                "topic": each.topic,
                "seconds": each.seconds,
                "succeeded": each.succeeded,
                "outcome": each.outcome,
                "retries": each.retries,
            }
            for each in events
        ],
        ("time", "event", "group", "client", "topic", "seconds", "succeeded", "outcome", "retries"),
    )

"""`rmq transaction`: half messages whose transactions brokers gave up."""

from __future__ import annotations

from typing import Annotated

import typer

from rmq_client import TopicNotFound

from ..declaring import command, command_group
from ..session import Session
from ..times import parse_time
from .common import the_message
from .message import SinceOption, UntilOption, show_messages

app = command_group("List half messages whose transactions brokers gave up, and check them again.")

# Brokers put half messages there that their producers left open for too long.
_GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


@command(app, "list", "rmq transaction list", "rmq transaction list --since 1d -o json")
def list_given_up(
    session: Session,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number; the oldest count.")] = 100,
) -> None:
    """List half messages that brokers stopped to check."""
    try:
        found = session.admin.messages_between(
            _GIVEN_UP,
            begin=None if since is None else parse_time(since),
            end=None if until is None else parse_time(until),
            max_messages=limit,
        )
    except TopicNotFound:  # no broker has given one up yet
        found = []
    show_messages(session, found)


@command(app, "resume", "rmq transaction resume 7F0000010BD718B4AAC2", changes=True)
def resume(
    session: Session,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Id that `list` shows.")],
) -> None:
    """Let the broker ask the producers for the outcome again."""
    message = the_message(session.admin, _GIVEN_UP, message_id)
    if session.may(f"let broker {message.broker_name} check half message {message_id} again"):
        session.admin.resume_transaction_check(message)
        session.out.note(f"broker {message.broker_name} checks half message {message_id} again")

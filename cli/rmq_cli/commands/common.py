"""Arguments and rows that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeAlias

import typer

from rmq_client import MessageExt, MessageQueue, OffsetChange
from rmq_client.blocking import Admin

from ..exits import CommandFailed, Exit
from ..output import Row

TopicArgument: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
GroupArgument: TypeAlias = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]
BrokerArgument: TypeAlias = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.")]
ClusterOption: TypeAlias = Annotated[str | None, typer.Option(help="Only the brokers of this cluster.")]
BrokerOption: TypeAlias = Annotated[str | None, typer.Option("--broker", help="Only this broker.")]
AttributesOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--attribute", help="KEY=VALUE sets an attribute, KEY= removes it; may be repeated."),
]

OFFSET_CHANGES = ("topic", "broker", "queue", "before", "after", "moved")


def changes_of(attributes: list[str] | None) -> dict[str, str] | None:
    """Return attributes as Admin takes them. Raises CommandFailed."""
    changes = {}
    for item in attributes or []:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise CommandFailed(f"attribute {item!r}: write KEY=VALUE", Exit.USAGE)
        changes[f"+{key}" if value else f"-{key}"] = value
    return changes or None


def pairs_of(items: Iterable[str], what: str) -> dict[str, str]:
    """Return `KEY=VALUE` items as a table. Raises CommandFailed."""
    pairs = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise CommandFailed(f"{what} {item!r}: write KEY=VALUE", Exit.USAGE)
        pairs[key] = value
    return pairs


def queue_of(topic: str, text: str) -> MessageQueue:
    """Return the queue `broker:id` of a topic. Raises CommandFailed."""
    broker, separator, number = text.rpartition(":")
    if not separator or not broker or not number.isdigit():
        raise CommandFailed(f"queue {text!r}: write BROKER:ID, such as broker-a:0", Exit.USAGE)
    return MessageQueue(topic, broker, int(number))


def offset_change_row(change: OffsetChange) -> Row:
    """Return a change of an offset as a row of OFFSET_CHANGES."""
    queue = change.queue
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "before": change.before,
        "after": change.after,
        "moved": None if change.before is None else change.after - change.before,
    }


def the_message(admin: Admin, topic: str, message_id: str) -> MessageExt:
    """Return the message with an id. Raises CommandFailed if there is none."""
    message = admin.view_message(topic, message_id)
    if message is None:
        raise CommandFailed(f"topic {topic} has no message with the id {message_id}", Exit.NOT_FOUND)
    return message

"""`rmq static-topic`: topics whose queues do not depend on the brokers that store them."""

from __future__ import annotations

from typing import Annotated

import typer

from rmq_client import QueueMove, StaticTopic

from ..declaring import command, command_group
from ..output import Row
from ..session import Session
from .common import TopicArgument

app = command_group("Create, grow, move and show static topics, whose queues can move between brokers.")

BrokersOption = Annotated[
    list[str], typer.Option("--broker", "-b", help="A broker that leads queues; may be repeated.")
]
_QUEUES = ("queue", "leader", "part", "broker", "broker_queue", "begin")
_MOVES = ("queue", "from", "to", "begin")


@command(app, "show", "rmq static-topic show orders", "rmq static-topic show orders -o json")
def show(session: Session, topic: TopicArgument) -> None:
    """Show the logical queues, and the brokers that have their parts."""
    _show(session, session.admin.static_topic(topic))


@command(
    app,
    "create",
    "rmq static-topic create orders --queues 8 --broker broker-a --broker broker-b",
    "rmq static-topic create orders --queues 16 -b broker-a -b broker-b  (8 more queues)",
    changes=True,
)
def create(
    session: Session,
    topic: TopicArgument,
    queues: Annotated[int, typer.Option(min=1, help="Logical queues in all.")],
    broker: BrokersOption,
) -> None:
    """Create a static topic, or give one more queues. All brokers of the cluster must run."""
    if session.may(f"give static topic {topic} {queues} queues on {', '.join(broker)}"):
        made = session.admin.create_static_topic(topic, queues, broker)
        session.out.note(f"static topic {topic} has {len(made.queues)} queues")


@command(
    app,
    "move",
    "rmq static-topic move orders --broker broker-b --broker broker-c --dry-run",
    "rmq static-topic move orders -b broker-b -b broker-c --yes",
    destroys=True,
)
def move(session: Session, topic: TopicArgument, broker: BrokersOption) -> None:
    """Move queues so that these brokers lead all of them. All brokers of the cluster must run.

    Messages stay where they are. The offsets of a moved queue go on at a higher number.
    """
    planned = session.admin.move_static_topic(topic, broker, dry_run=True)
    if session.dry_run or not planned:
        session.out.rows(map(_move_row, planned), _MOVES)
    if not planned:
        session.out.note(f"no queue of {topic} has to move")
    elif session.may_destroy(f"move {len(planned)} queues of static topic {topic} to {', '.join(broker)}"):
        moves = session.admin.move_static_topic(topic, broker)
        session.out.rows(map(_move_row, moves), _MOVES)


@command(
    app,
    "repair",
    "rmq static-topic repair orders --dry-run",
    "rmq static-topic repair orders",
    changes=True,
)
def repair(session: Session, topic: TopicArgument) -> None:
    """Finish a change that was interrupted. All brokers of the cluster must run."""
    planned = session.admin.repair_static_topic(topic, dry_run=True)
    if session.may(f"finish the changes of static topic {topic}, {len(planned)} moves among them"):
        session.out.rows(map(_move_row, session.admin.repair_static_topic(topic)), _MOVES)
        session.out.note(f"static topic {topic} is whole")


def _show(session: Session, topic: StaticTopic) -> None:
    session.out.note(f"epoch {topic.epoch}")
    session.out.rows(
        [
            {
                "queue": queue.queue_id,
                "leader": queue.leader,
                "part": number,
                "broker": part.broker_name,
                "broker_queue": part.queue_id,
                "begin": part.begin,
            }
            for queue in topic.queues
            for number, part in enumerate(queue.parts)
        ],
        _QUEUES,
    )


def _move_row(each: QueueMove) -> Row:
    return {"queue": each.queue_id, "from": each.source, "to": each.target, "begin": each.begin}

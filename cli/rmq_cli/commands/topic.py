"""`rmq topic`: create, change, delete, list and show topics."""

from __future__ import annotations

import fnmatch
from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..output import counted
from ..session import Session
from .common import AttributesOption, BrokerOption, ClusterOption, TopicArgument, changes_of, queue_of

app = command_group("Create, change, delete, list and show topics.")

_SYSTEM_PREFIXES = ("%RETRY%", "%DLQ%", "RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_")
_SYSTEM_TOPICS = frozenset(
    {"TBW102", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"}
)


@command(app, "list", "rmq topic list", "rmq topic list 'order*' -o json")
def list_topics(
    session: Session,
    pattern: Annotated[str, typer.Argument(help="Names to list; * stands for anything.")] = "*",
    all_topics: Annotated[bool, typer.Option("--all", help="Also topics of brokers and retries.")] = False,
    cluster: ClusterOption = None,
) -> None:
    """List topics."""
    admin = session.admin
    known = admin.cluster_info()
    hidden = {*known.brokers, *known.clusters}
    names = [
        name
        for name in admin.topics(cluster=cluster)
        if fnmatch.fnmatchcase(name, pattern) and (all_topics or not (name in hidden or _is_system(name)))
    ]
    session.out.rows([{"topic": name} for name in names], ("topic",))


@command(app, "show", "rmq topic show orders")
def show(session: Session, topic: TopicArgument) -> None:
    """Show the settings of a topic on each broker."""
    settings = session.admin.topic_settings(topic)
    session.out.rows(
        [
            {
                "broker": broker,
                "read_queues": each.read_queues,
                "write_queues": each.write_queues,
                "permission": _permission_text(each.permission),
                "ordered": each.ordered,
                "attributes": each.attributes,
            }
            for broker, each in settings.items()
        ],
        ("broker", "read_queues", "write_queues", "permission", "ordered", "attributes"),
    )


@command(
    app,
    "create",
    "rmq topic create orders --queues 8",
    "rmq topic create invoices --attribute message.type=FIFO --if-missing",
    changes=True,
)
def create(
    session: Session,
    topic: TopicArgument,
    queues: Annotated[int, typer.Option(min=1, help="Queues on each broker.")] = 8,
    permission: Annotated[str, typer.Option(help="rw, r or w.")] = "rw",
    ordered: Annotated[bool, typer.Option(help="An ordered topic of Apache's kind.")] = False,
    attribute: AttributesOption = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="No error if it exists; it is left as it is.")
    ] = False,
) -> None:
    """Create a topic, and wait until clients can find it."""
    attributes, number = changes_of(attribute), _permission(permission)
    if session.may(f"create topic {topic} with {queues} queues on {broker or cluster or 'all brokers'}"):
        session.admin.create_topic(
            topic,
            queues=queues,
            permission=number,
            ordered=ordered,
            attributes=attributes,
            cluster=cluster,
            broker_name=broker,
            exists_ok=if_missing,
        )
        session.out.note(f"topic {topic} is there")


@command(app, "update", "rmq topic update orders --write-queues 16 --read-queues 16", changes=True)
def update(
    session: Session,
    topic: TopicArgument,
    read_queues: Annotated[int | None, typer.Option(min=1, help="Queues that consumers read.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="Queues that producers fill.")] = None,
    permission: Annotated[str | None, typer.Option(help="rw, r or w.")] = None,
    attribute: AttributesOption = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Change a topic. Settings without an option stay as they are.

    To remove queues, lower the write queues first, and the read queues once they are consumed.
    """
    attributes = changes_of(attribute)
    number = None if permission is None else _permission(permission)
    if session.may(f"change topic {topic} on {broker or cluster or 'all brokers'}"):
        session.admin.update_topic(
            topic,
            read_queues=read_queues,
            write_queues=write_queues,
            permission=number,
            attributes=attributes,
            cluster=cluster,
            broker_name=broker,
        )
        session.out.note(f"topic {topic} is changed")


@command(app, "delete", "rmq topic delete orders --dry-run", "rmq topic delete orders --yes", destroys=True)
def delete(session: Session, topic: TopicArgument) -> None:
    """Delete a topic with its messages."""
    stats = session.admin.topic_stats(topic)
    messages = counted(sum(each.messages for each in stats.values()), "message")
    held = f"{messages} in {counted(len(stats), 'queue')}"
    if session.may_destroy(f"delete topic {topic} with {held}"):
        session.admin.delete_topic(topic)
        session.out.note(f"topic {topic} is deleted")


@command(app, "stats", "rmq topic stats orders", "rmq topic stats orders -o csv")
def stats(session: Session, topic: TopicArgument) -> None:
    """Show the offsets of every queue, and when it got its last message."""
    found = session.admin.topic_stats(topic)
    session.out.rows(
        [
            {
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "first_offset": each.min_offset,
                "end_offset": each.max_offset,
                "messages": each.messages,
                "last_message": each.last_stored,
            }
            for queue, each in sorted(found.items())
        ],
        ("broker", "queue", "first_offset", "end_offset", "messages", "last_message"),
    )


@command(
    app,
    "entries",
    "rmq topic entries orders broker-a:0 --from 100 --count 20",
    "rmq topic entries orders broker-a:0 --group till",
)
def entries(
    session: Session,
    topic: TopicArgument,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="BROKER:ID.")],
    begin: Annotated[int, typer.Option("--from", min=0, help="Offset of the first entry.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Maximum number of entries.")] = 10,
    group: Annotated[
        str | None, typer.Option(help="Tell for each entry whether the group's filter may accept it.")
    ] = None,
) -> None:
    """Show where the messages of a queue are in the broker's log."""
    found = session.admin.queue_entries(queue_of(topic, queue), begin, max_entries=count, group=group)
    session.out.note(f"the queue has the offsets from {found.min_offset} to before {found.max_offset}")
    if group is not None and found.filter_text:
        session.out.note(f"filter of group {group}: {found.expression or ''} {found.filter_text}".rstrip())
    session.out.rows(
        [
            {
                "offset": each.offset,
                "log_offset": each.physical_offset,
                "bytes": each.size_bytes,
                "tags_code": each.tags_code,
                "matches": each.matches,
                "details": each.details,
            }
            for each in found.entries
        ],
        ("offset", "log_offset", "bytes", "tags_code", "matches", "details"),
    )


@command(app, "route", "rmq topic route orders")
def route(session: Session, topic: TopicArgument) -> None:
    """Show the brokers and queues that name servers tell clients."""
    found = session.admin.topic_route(topic)
    session.out.rows(
        [
            {
                "broker": name,
                "master": addresses.get(0),
                "replicas": [address for number, address in sorted(addresses.items()) if number],
                "read_queues": sum(found.broker_of(queue) == name for queue in found.read_queues),
                "write_queues": sum(found.broker_of(queue) == name for queue in found.write_queues),
            }
            for name, addresses in sorted(found.brokers.items())
        ],
        ("broker", "master", "replicas", "read_queues", "write_queues"),
    )


@command(app, "groups", "rmq topic groups orders")
def groups(session: Session, topic: TopicArgument) -> None:
    """List the groups that consume a topic."""
    session.out.rows([{"group": name} for name in session.admin.topic_groups(topic)], ("group",))


def _is_system(name: str) -> bool:
    return name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES) or name.endswith("_REPLY_TOPIC")


def _permission(text: str) -> int:
    """Return the number of a permission. Raises CommandFailed."""
    numbers = {"rw": 6, "wr": 6, "r": 4, "w": 2, "6": 6, "4": 4, "2": 2}
    if text.lower() not in numbers:
        raise CommandFailed(f"permission {text!r}: write rw, r or w", Exit.USAGE)
    return numbers[text.lower()]


def _permission_text(number: int) -> str:
    return ("r" if number & 4 else "") + ("w" if number & 2 else "")

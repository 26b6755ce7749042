"""`rmq group`: create, change, delete, list and show consumer groups and their members."""

from __future__ import annotations

import fnmatch
from typing import Annotated

import typer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..session import Session
from .common import AttributesOption, BrokerOption, ClusterOption, GroupArgument, TopicArgument, changes_of

app = command_group("Create, change, delete, list and show consumer groups and their members.")

RetriesOption = Annotated[
    int | None, typer.Option(min=0, help="Redeliveries before a message becomes a dead letter.")
]


@command(app, "list", "rmq group list", "rmq group list 'till*'")
def list_groups(
    session: Session,
    pattern: Annotated[str, typer.Argument(help="Names to list; * stands for anything.")] = "*",
    all_groups: Annotated[bool, typer.Option("--all", help="Also groups of brokers and tools.")] = False,
) -> None:
    """List consumer groups."""
    names = session.admin.groups(system=all_groups)
    session.out.rows([{"group": name} for name in names if fnmatch.fnmatchcase(name, pattern)], ("group",))


@command(app, "show", "rmq group show till")
def show(session: Session, group: GroupArgument) -> None:
    """Show the settings of a group on each broker."""
    session.out.rows(
        [
            {
                "broker": broker,
                "consumes": each.consume_enabled,
                "broadcasts": each.broadcast_enabled,
                "ordered": each.ordered,
                "max_retries": each.max_retries,
                "retry_queues": each.retry_queues,
                "attributes": each.attributes,
            }
            for broker, each in session.admin.group_settings(group).items()
        ],
        ("broker", "consumes", "broadcasts", "ordered", "max_retries", "retry_queues", "attributes"),
    )


@command(
    app, "create", "rmq group create till", "rmq group create till --max-retries 3 --ordered", changes=True
)
def create(
    session: Session,
    group: GroupArgument,
    max_retries: RetriesOption = 16,
    retry_queues: Annotated[int, typer.Option(min=0, help="Queues of the group's retry topic.")] = 1,
    ordered: Annotated[bool, typer.Option(help="POP consumers get messages in order.")] = False,
    attribute: AttributesOption = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="No error if it exists; it is left as it is.")
    ] = False,
) -> None:
    """Create a consumer group."""
    attributes = changes_of(attribute)
    if session.may(f"create group {group} on {broker or cluster or 'all brokers'}"):
        session.admin.create_group(
            group,
            ordered=ordered,
            max_retries=16 if max_retries is None else max_retries,
            retry_queues=retry_queues,
            attributes=attributes,
            cluster=cluster,
            broker_name=broker,
            exists_ok=if_missing,
        )
        session.out.note(f"group {group} is there")


@command(
    app,
    "update",
    "rmq group update till --max-retries 5",
    "rmq group update till --no-consume",
    changes=True,
)
def update(
    session: Session,
    group: GroupArgument,
    max_retries: RetriesOption = None,
    retry_queues: Annotated[
        int | None, typer.Option(min=0, help="Queues of the group's retry topic.")
    ] = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--not-ordered", help="POP consumers get messages in order.")
    ] = None,
    consume: Annotated[
        bool | None, typer.Option("--consume/--no-consume", help="Whether brokers let the group consume.")
    ] = None,
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether the group may broadcast.")
    ] = None,
    attribute: AttributesOption = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
) -> None:
    """Change a group. Settings without an option stay as they are."""
    attributes = changes_of(attribute)
    if session.may(f"change group {group} on {broker or cluster or 'all brokers'}"):
        session.admin.update_group(
            group,
            ordered=ordered,
            max_retries=max_retries,
            retry_queues=retry_queues,
            consume_enabled=consume,
            broadcast_enabled=broadcast,
            attributes=attributes,
            cluster=cluster,
            broker_name=broker,
        )
        session.out.note(f"group {group} is changed")


@command(app, "delete", "rmq group delete till --dry-run", "rmq group delete till --yes", destroys=True)
def delete(
    session: Session,
    group: GroupArgument,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Keep its offsets.")] = False,
    keep_topics: Annotated[
        bool, typer.Option("--keep-topics", help="Keep its retry topic and dead letters.")
    ] = False,
) -> None:
    """Delete a group with its offsets, retries and dead letters. Stop its consumers first."""
    brokers = session.admin.group_settings(group)
    members = len(session.admin.group_connections(group).clients)
    running = f", which has {members} running consumers," if members else ""
    if session.may_destroy(f"delete group {group}{running} from {', '.join(brokers)}"):
        session.admin.delete_group(group, keep_offsets=keep_offsets, keep_topics=keep_topics)
        session.out.note(f"group {group} is deleted")


@command(app, "topics", "rmq group topics till")
def topics(session: Session, group: GroupArgument) -> None:
    """List the topics that a group has consumed."""
    session.out.rows([{"topic": name} for name in session.admin.group_topics(group)], ("topic",))


@command(app, "members", "rmq group members till")
def members(session: Session, group: GroupArgument) -> None:
    """List the running consumers of a group."""
    found = session.admin.group_connections(group)
    session.out.rows(
        [
            {
                "client": each.client_id,
                "address": each.address,
                "language": each.language,
                "version": each.version,
                "brokers": each.brokers,
                "subscriptions": found.subscriptions,
            }
            for each in found.clients
        ],
        ("client", "address", "language", "version", "brokers", "subscriptions"),
    )


@command(app, "state", "rmq group state till 10.0.0.7@4711#1", "rmq group state till CLIENT --stacks")
def state(
    session: Session,
    group: GroupArgument,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Client id, as `members` lists it.")],
    stacks: Annotated[bool, typer.Option("--stacks", help="Also the stacks of its threads.")] = False,
) -> None:
    """Ask a running consumer for its queues, rates and settings."""
    found = session.admin.consumer_state(group, client, stacks=stacks)
    record: dict[str, object] = {f"property {key}": value for key, value in found.properties.items()}
    record |= {f"subscription {topic}": text for topic, text in found.subscriptions.items()}
    record |= {
        f"buffered {queue.topic} {queue.broker_name}:{queue.queue_id}": count
        for queue, count in found.queues.items()
    }
    for topic, rates in found.rates.items():
        record[f"rates {topic}"] = (
            f"{rates.pulled_per_second:.1f}/s pulled, {rates.consumed_per_second:.1f}/s consumed, "
            f"{rates.consume_ms:.1f} ms each, {rates.failed_last_hour} refused in the last hour"
        )
    if found.stacks is not None:
        record["stacks"] = found.stacks
    session.out.record(record)


@command(app, "mode", "rmq group mode till orders pop", "rmq group mode till orders pull", changes=True)
def mode(
    session: Session,
    group: GroupArgument,
    topic: TopicArgument,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="pop or pull.")],
    share: Annotated[int, typer.Option(min=0, help="POP consumers that share a queue; 0: all.")] = 0,
) -> None:
    """Choose whether a group pops or pulls a topic, if brokers divide the queues."""
    if mode not in ("pop", "pull"):
        raise CommandFailed(f"mode {mode!r}: write pop or pull", Exit.USAGE)
    if session.may(f"let group {group} {mode} topic {topic}"):
        session.admin.set_consume_mode(group, topic, pop=mode == "pop", share_queues=share)
        session.out.note(f"group {group} will {mode} topic {topic}")


@command(app, "forbid", "rmq group forbid till orders", "rmq group forbid till orders --undo", changes=True)
def forbid(
    session: Session,
    group: GroupArgument,
    topic: TopicArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Allow it again.")] = False,
) -> None:
    """Forbid a group to read a topic."""
    verb = "allow" if undo else "forbid"
    if session.may(f"{verb} group {group} to read topic {topic}"):
        session.admin.set_group_readable(group, topic, undo)
        session.out.note(f"group {group} may {'' if undo else 'not '}read topic {topic}")


@command(app, "producers", "rmq group producers", "rmq group producers shop")
def producers(
    session: Session,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Name of a producer group.")] = None,
) -> None:
    """List the running producers, of all groups or of one."""
    found = session.admin.producer_connections(group)
    session.out.rows(
        [
            {
                "group": name,
                "client": each.client_id,
                "address": each.address,
                "language": each.language,
                "version": each.version,
                "brokers": each.brokers,
            }
            for name, clients in found.items()
            for each in clients
        ],
        ("group", "client", "address", "language", "version", "brokers"),
    )

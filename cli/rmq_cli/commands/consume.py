"""`rmq consume`: print the messages of a topic, stored and new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import typer

from rmq_client import Admin, MessageExt, MessageQueue, PullConsumer, Sql

from ..declaring import command
from ..exits import CommandFailed, Exit
from ..printing import MessagePrinter
from ..reading import Filter, follow, stored
from ..session import Session
from ..times import TIME_HELP, parse_duration, parse_time
from .common import TopicArgument, queue_of
from .message import filter_of

_IDLE_SECONDS: Final = 3.0
_PER_POLL: Final = 32
_POLL_SECONDS: Final = 0.5


def add_consume(app: typer.Typer) -> None:
    """Add the command to the root."""
    command(
        app,
        "consume",
        "rmq consume orders --from 1h --tag 'paid || sent'",
        "rmq consume orders --follow",
        "rmq consume orders --follow --count 10 --idle 30s -o json",
        "rmq consume orders --group till --follow --format '{queue}@{offset} {body}'",
    )(consume)


def consume(
    session: Session,
    topic: TopicArgument,
    begin: Annotated[
        str | None,
        typer.Option("--from", help=f"earliest, latest, {TIME_HELP}. With --follow latest, else earliest."),
    ] = None,
    until: Annotated[str | None, typer.Option(help="End at messages stored then or later.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only these tags: 'a || b'.")] = None,
    sql: Annotated[str | None, typer.Option(help="Only messages with such properties (SQL92).")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue: BROKER:ID.")] = None,
    follow_on: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages.")] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after this many messages; exit with 6 if fewer come.")
    ] = None,
    idle: Annotated[str | None, typer.Option(help="End if no message comes for this time.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Consume as a member of this group, and commit its offsets.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="A template such as '{offset} {body}', or one word: body."),
    ] = None,
) -> None:
    """Print the messages of a topic. Without --group no offset of any group changes."""
    expression, kind = filter_of(tag, sql)
    start = begin or ("latest" if follow_on else "earliest")
    since = None if start in ("earliest", "latest") else parse_time(start)
    end = None if until is None else parse_time(until)
    idle_seconds = None if idle is None else parse_duration(idle)
    printer = MessagePrinter(session.out, form)
    if group is not None and queue is not None:
        raise CommandFailed("--group does not go with --queue: the group divides the queues", Exit.USAGE)

    async def run() -> int:
        if group is not None:
            patience = idle_seconds if idle_seconds is not None or follow_on else _IDLE_SECONDS
            place = _Membership(
                topic,
                group,
                expression if sql is None else Sql(sql),
                since or ("first" if start == "earliest" else "last"),
            )
            return await _consume(session, place, printer, count, end, patience)
        only = None if queue is None else queue_of(topic, queue)
        messages = _read(session, topic, only, Filter(expression, kind), since, start == "latest", follow_on)
        return await _print(messages, printer, count, end, idle_seconds)

    printed = asyncio.run(run())
    if count is not None and printed < count:
        raise CommandFailed(f"{printed} of {count} messages came", Exit.CONDITION)


async def _print(
    messages: AsyncGenerator[MessageExt, None],
    printer: MessagePrinter,
    count: int | None,
    end: datetime | None,
    idle_seconds: float | None,
) -> int:
    """Print messages until one of the conditions; return how many were printed."""
    end_ms = None if end is None else int(end.timestamp() * 1000)
    printed = 0
    async with aclosing(messages) as source:
        while count is None or printed < count:
            try:
                message = await asyncio.wait_for(anext(source), idle_seconds)
            except (StopAsyncIteration, TimeoutError):
                break
            if end_ms is not None and message.store_timestamp >= end_ms:
                break
            printer.print(message)
            printed += 1
    return printed


async def _read(
    session: Session,
    topic: str,
    only: MessageQueue | None,
    wanted: Filter,
    since: datetime | None,
    from_the_end: bool,
    follow_on: bool,
) -> AsyncGenerator[MessageExt, None]:
    """Yield the messages of the queues, without a group."""
    async with Admin(session.namesrv, settings=session.settings) as admin:
        queues = (await admin.topic_route(topic)).read_queues if only is None else (only,)
        if not queues:
            raise CommandFailed(f"topic {topic} has no queue that can be read", Exit.NOT_FOUND)

        async def begin(queue: MessageQueue) -> int:
            if since is not None:
                return await admin.search_offset(queue, since)
            return await (admin.max_offset(queue) if from_the_end else admin.min_offset(queue))

        begins = dict(zip(queues, await asyncio.gather(*map(begin, queues)), strict=True))
        begins = {queue: max(0, offset) for queue, offset in begins.items()}
        ends = dict(zip(queues, await asyncio.gather(*map(admin.max_offset, queues)), strict=True))
        async with aclosing(stored(admin, begins, ends, wanted)) as old:
            async for message in old:
                yield message
        if follow_on:
            async with aclosing(follow(admin, ends, wanted)) as new:
                async for message in new:
                    yield message


@dataclass(frozen=True, slots=True)
class _Membership:
    """What a member of a group consumes, and where a group without offsets begins."""

    topic: str
    group: str
    expression: str
    begin: datetime | Literal["first", "last"]


async def _consume(
    session: Session,
    place: _Membership,
    printer: MessagePrinter,
    count: int | None,
    end: datetime | None,
    idle_seconds: float | None,
) -> int:
    """Print messages as a member of a group, and commit the printed ones; return their number.

    A message that was stored at `end` or later is not committed, nor are those behind it in its queue.
    """
    end_ms = None if end is None else int(end.timestamp() * 1000)
    loop = asyncio.get_running_loop()
    printed, last = 0, loop.time()
    finished: set[MessageQueue] = set()
    async with PullConsumer(
        session.namesrv, group=place.group, consume_from=place.begin, settings=session.settings
    ) as consumer:
        await consumer.subscribe(place.topic, place.expression)
        while count is None or printed < count:
            most = _PER_POLL if count is None else min(_PER_POLL, count - printed)
            messages = await consumer.poll(max_messages=most, timeout_seconds=_POLL_SECONDS)
            offsets: dict[MessageQueue, int] = {}
            for message in messages:
                queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
                if queue in finished or (end_ms is not None and message.store_timestamp >= end_ms):
                    finished.add(queue)
                    continue
                printer.print(message)
                printed += 1
                offsets[queue] = message.queue_offset + 1
            if offsets:
                await consumer.commit(offsets)
                last = loop.time()
            consumer.pause(finished.intersection(consumer.assigned_queues()))
            patience = idle_seconds
            if patience is None and end is not None and datetime.now(UTC) >= end:
                patience = _IDLE_SECONDS  # a message of before may still be on its way
            if not offsets and patience is not None and loop.time() - last > patience:
                break
    return printed

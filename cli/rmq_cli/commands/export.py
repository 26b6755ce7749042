"""`rmq message export`: the stored messages of a topic in a file."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated

import typer

from rmq_client import Admin, MessageQueue

from ..declaring import command
from ..exits import CommandFailed, Exit
from ..messages import message_record
from ..output import counted, plain_value
from ..progress import progress
from ..reading import Filter, stored
from ..session import Session
from ..times import parse_time
from .common import TopicArgument, queue_of
from .message import SinceOption, UntilOption, filter_of


def add_export(app: typer.Typer) -> None:
    """Add the command to `rmq message`."""
    command(
        app,
        "export",
        "rmq message export orders orders.jsonl",
        "rmq message export orders paid.jsonl --since 1d --tag paid --force",
    )(export)


def export(
    session: Session,
    topic: TopicArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, a JSON object on each line.")],
    since: SinceOption = None,
    until: UntilOption = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only these tags: 'a || b'.")] = None,
    sql: Annotated[str | None, typer.Option(help="Only messages with such properties (SQL92).")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue: BROKER:ID.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write the stored messages of a topic to a file, in the order of their storage.

    No offset of any group changes. A terminal shows the progress.
    """
    wanted = Filter(*filter_of(tag, sql))
    begin = None if since is None else parse_time(since)
    end = None if until is None else parse_time(until)
    only = None if queue is None else queue_of(topic, queue)
    try:
        target = file.open("w" if force else "x", encoding="utf-8")
    except FileExistsError:
        problem = f"{file} exists: give another name, or --force to replace it"
        raise CommandFailed(problem, Exit.USAGE) from None
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}") from error
    with target:
        count = asyncio.run(_export(session, topic, only, wanted, begin, end, target))
    session.out.note(f"wrote {counted(count, 'message')} of topic {topic} to {file}")


async def _export(
    session: Session,
    topic: str,
    only: MessageQueue | None,
    wanted: Filter,
    begin: datetime | None,
    end: datetime | None,
    target: IO[str],
) -> int:
    """Write the messages; return how many there were."""
    async with Admin(session.namesrv, settings=session.settings) as admin:
        queues = (await admin.topic_route(topic)).read_queues if only is None else (only,)

        async def bound(queue: MessageQueue, time: datetime | None, *, is_end: bool) -> int:
            if time is not None:
                return await admin.search_offset(queue, time)
            return await (admin.max_offset(queue) if is_end else admin.min_offset(queue))

        begins = {queue: max(0, await bound(queue, begin, is_end=False)) for queue in queues}
        ends = {queue: await bound(queue, end, is_end=True) for queue in queues}
        total = sum(max(0, ends[queue] - begins[queue]) for queue in queues)
        reached = dict(begins)
        count = done = 0
        with progress(total, "exporting") as advance:
            async with aclosing(stored(admin, begins, ends, wanted)) as messages:
                async for message in messages:
                    record = plain_value(message_record(message))
                    target.write(json.dumps(record, ensure_ascii=False) + "\n")
                    count += 1
                    queue = MessageQueue(topic, message.broker_name, message.queue_id)
                    done += message.queue_offset + 1 - reached.get(queue, message.queue_offset)
                    reached[queue] = message.queue_offset + 1
                    advance(done)
    return count

"""`rmq produce`: send messages from the command line, from a file or from a pipe."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Coroutine, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from rmq_client import ClientError, Message, Producer, SendResult

from ..declaring import command
from ..exits import CommandFailed, Exit, exit_code
from ..output import Format, counted
from ..progress import Advance, progress
from ..session import Session
from ..times import parse_duration
from .common import TopicArgument, pairs_of, queue_of

_COLUMNS = ("broker", "queue", "offset", "id")
# Sends that wait for their answers at the same time.
_IN_FLIGHT = 256


def add_produce(app: typer.Typer) -> None:
    """Add the command to the root."""
    command(
        app,
        "produce",
        "rmq produce orders 'order 4711 paid' --tag paid --key 4711",
        "rmq produce orders --file orders.txt",
        "cat orders.jsonl | rmq produce orders --json --quiet",
        changes=True,
    )(produce)


def produce(
    session: Session,
    topic: TopicArgument,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BODY]...", help="Without one: lines of standard input."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Send the lines of this file.")] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Lines are objects with body (or body_base64), and tags, keys, properties, sharding_key.",
        ),
    ] = False,
    tag: Annotated[str | None, typer.Option(help="Tag of the messages.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Key of the messages; may be repeated.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", help="KEY=VALUE of the messages; may be repeated.")
    ] = None,
    sharding_key: Annotated[str | None, typer.Option(help="Messages with the same stay in order.")] = None,
    delay: Annotated[str | None, typer.Option(help="Deliver after this time: 30s, 10m, 2h.")] = None,
    queue: Annotated[str | None, typer.Option(help="Send to this queue: BROKER:ID.")] = None,
    group: Annotated[str, typer.Option(help="Name of the producer group.")] = "rmq-cli",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not list the sent messages.")] = False,
) -> None:
    """Send messages: of the command line, of the lines of a file, or of standard input."""
    if bodies and file is not None:
        raise CommandFailed("give bodies or --file, not both", Exit.USAGE)
    target = None if queue is None else queue_of(topic, queue)
    properties = pairs_of(prop or (), "property")
    delay_seconds = 0.0 if delay is None else parse_duration(delay)

    def message(text: str) -> tuple[Message, str | None]:
        fields: dict[str, Any] = _fields(text) if as_json else {"body": text.encode()}
        try:
            made = Message(
                topic,
                fields["body"],
                tags=fields.get("tags") or tag,
                keys=fields.get("keys") or key or (),
                properties={**properties, **(fields.get("properties") or {})},
                delay_seconds=delay_seconds,
            )
            shard = fields.get("sharding_key") or sharding_key
            made.sharding_key = shard
        except ClientError as error:
            raise _WrongLine(str(error)) from error
        return made, shard

    async def send_all(lines: Iterator[str]) -> int:
        async with Producer(session.namesrv, group=group, settings=session.settings) as producer:
            with progress(len(bodies) if bodies else None, "sending") as advance:
                sending = _Sending(session, quiet, advance)
                try:
                    for line in lines:
                        made, shard = message(line)
                        sending.add(producer.send(made, queue=target, key=shard if target is None else None))
                        # Messages that must stay in order are sent one after the other.
                        await sending.wait(0 if shard or target else _IN_FLIGHT)
                except _WrongLine as error:
                    await sending.wait(0)
                    before = "" if bodies else f"; {sending.told} before it"
                    raise CommandFailed(f"{error}{before}", Exit.USAGE) from error
                await sending.wait(0)
        return sending.sent

    if not session.may(f"send {counted(len(bodies), 'message') if bodies else 'messages'} to topic {topic}"):
        return
    if not quiet and session.out.form is Format.CSV:
        session.out.line(",".join(_COLUMNS))
    with _opened(file) as source:
        lines = iter(bodies) if bodies else _lines(source)
        sent = asyncio.run(send_all(line for line in lines if line))
    session.out.note(f"sent {counted(sent, 'message')} to topic {topic}")


class _WrongLine(Exception):
    """A line of the input that is no message. The text says why."""


class _Sending:
    """Sends in flight, and the count of those that have ended."""

    def __init__(self, session: Session, quiet: bool, advance: Advance) -> None:
        self.sent = 0
        self._session = session
        self._quiet = quiet
        self._advance = advance
        self._tasks: set[asyncio.Task[SendResult]] = set()

    def add(self, send: Coroutine[Any, Any, SendResult]) -> None:
        """Begin a send."""
        self._tasks.add(asyncio.ensure_future(send))

    @property
    def told(self) -> str:
        """How many messages were sent, for an error."""
        return f"{counted(self.sent, 'message')} {'was' if self.sent == 1 else 'were'} sent"

    async def wait(self, keep: int) -> None:
        """Wait until at most `keep` sends are in flight.

        Raises CommandFailed for a failed send, once the others have ended, with the number of stored
        messages.
        """
        while len(self._tasks) > keep:
            done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            failures = [error for error in map(self._ended, done) if error is not None]
            if failures:
                rest, self._tasks = self._tasks, set()
                await asyncio.gather(*rest, return_exceptions=True)
                failures += [error for error in map(self._ended, rest) if error is not None]
                failed, sent = counted(len(failures), "send"), counted(self.sent, "message")
                raise CommandFailed(f"{failures[0]}; {failed} failed after {sent}", exit_code(failures[0]))
            self._advance(self.sent)

    def _ended(self, task: asyncio.Task[SendResult]) -> ClientError | None:
        """Tell a result, or return the error of the send."""
        error = task.exception()
        if error is None:
            _tell(self._session, task.result(), self._quiet)
            self.sent += 1
            return None
        if isinstance(error, ClientError):
            return error
        raise error


def _opened(file: Path | None) -> Any:
    if file is None:
        return nullcontext(sys.stdin)
    try:
        return file.open(encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}", Exit.USAGE) from error


def _lines(source: TextIO) -> Iterator[str]:
    """Yield the lines of the input. Raises _WrongLine for bytes that are no text."""
    try:
        for line in source:
            yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise _WrongLine(f"the input is not UTF-8: {error.reason} at byte {error.start}") from error


def _fields(line: str) -> dict[str, Any]:
    """Return a line of --json, with its body as bytes. Raises _WrongLine.

    Further members are ignored, so that files of `rmq message export` can be sent.
    """
    about = f"line {line[:80]!r}"
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise _WrongLine(f"{about} is no JSON: {error}") from error
    if not isinstance(fields, dict) or not fields.keys() & {"body", "body_base64"}:
        raise _WrongLine(f"{about}: an object with a member 'body' or 'body_base64' is needed")
    if not isinstance(fields.get("properties") or {}, dict):
        raise _WrongLine(f"{about}: 'properties' must be an object of names and texts")
    try:
        return {**fields, "body": _body(fields)}
    except (TypeError, ValueError) as error:
        raise _WrongLine(f"{about}: the body cannot be encoded: {error}") from error


def _body(fields: dict[str, Any]) -> bytes:
    """Return the body: a text as UTF-8, other values as JSON. Raises TypeError, ValueError."""
    if "body" not in fields:
        return base64.b64decode(fields["body_base64"], validate=True)
    body = fields["body"]
    return (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode()


def _tell(session: Session, result: SendResult, quiet: bool) -> None:
    if quiet:
        return
    row = {
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
        "id": result.msg_id,
    }
    if session.out.form is Format.JSON:
        session.out.line(json.dumps(row))
    elif session.out.form is Format.CSV:
        session.out.line(",".join(map(str, row.values())))
    else:
        session.out.line(f"{row['broker']}:{row['queue']} offset {row['offset']} id {row['id']}")

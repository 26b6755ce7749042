"""The command `rmq-store`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.version_option import PrintVersion

from .directory import DirectoryUnusable
from .findings import DEFAULT_LIMIT
from .properties import DEFAULT_DELAY_LEVELS, parse_delay_levels

EXIT_CLEAN: Final = 0
EXIT_DAMAGED: Final = 1
EXIT_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0, 1 if damage was found, 2 if nothing could be done."""
    options = argument_parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except (DirectoryUnusable, ValueError) as error:
        print(f"rmq-store: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_USAGE
    except OSError as error:
        print(f"rmq-store: {error.filename or 'a file'} cannot be read: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("rmq-store: interrupted", file=sys.stderr)
        return EXIT_USAGE
    return code


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="rmq-store",
        description="Inspect the store directory of a broker, stopped or running; repair a stopped one.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=PrintVersion, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_verify(commands)
    _add_dump(commands)
    _add_stats(commands)
    _add_repair(commands)
    return parser


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "verify",
        help="check every record, queue entry and index entry",
        description="Check all files of a store directory. Exit code 0: clean, 1: damaged.",
        allow_abbrev=False,
    )
    _add_directory(command)
    command.add_argument("--json", action="store_true", help="print one JSON document")
    command.add_argument(
        "--strict", action="store_true", help="count defects that a broker repairs at its start as damage"
    )
    command.add_argument(
        "--limit",
        type=_positive,
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"show at most N findings of each kind ({DEFAULT_LIMIT}); the others are counted",
    )
    _add_layout(command)
    command.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> int:
    from .verify import VerifyOptions, verify  # noqa: PLC0415 (--help is quick)

    report = verify(
        options.directory,
        VerifyOptions(
            strict=options.strict,
            limit=options.limit,
            delay_levels=options.delay_levels,
            index_slots=options.index_slots,
            jobs=options.jobs,
        ),
    )
    if options.json:
        print(json.dumps(report.as_json(), ensure_ascii=False, indent=1))
    else:
        print("\n".join(report.lines()))
    return EXIT_CLEAN if report.is_clean else EXIT_DAMAGED


def _add_dump(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "dump",
        help="show messages",
        description="Show messages in the order of the log. Damaged ranges are reported on standard error.",
        allow_abbrev=False,
    )
    _add_directory(command)
    command.add_argument(
        "--output", choices=["table", "json"], default="table", help="a table, or JSON lines"
    )
    command.add_argument("--topic", metavar="TOPIC", help="messages of this topic")
    command.add_argument("--queue", type=_whole, metavar="ID", help="messages of the queue with this number")
    command.add_argument("--from-offset", type=_whole, metavar="N", help="first queue offset")
    command.add_argument("--count", type=_positive, metavar="N", help="show at most N messages")
    command.add_argument("--key", metavar="KEY", help="messages with this key")
    command.add_argument(
        "--msg-id", metavar="ID", help="id of the broker (offset message id) or of the client"
    )
    command.add_argument("--since", type=_time_ms, metavar="TIME", help="stored at TIME or later")
    command.add_argument(
        "--until",
        type=_time_ms,
        metavar="TIME",
        help="stored at TIME or earlier; TIME is in ms since 1970 or ISO 8601",
    )
    command.add_argument(
        "--physical-offset", type=_whole, metavar="N", help="the message at this offset of the log"
    )
    command.add_argument("--body", action="store_true", help="show the decompressed body")
    _add_delay_levels(command)
    command.set_defaults(run=_dump)


def _dump(options: argparse.Namespace) -> int:
    from .dump import TABLE_HEAD, DumpOptions, as_line, as_table_row, check_topic, delays_of, dump  # noqa: PLC0415

    wanted = DumpOptions(
        topic=options.topic,
        queue=options.queue,
        from_offset=options.from_offset,
        count=options.count,
        key=options.key,
        message_id=options.msg_id,
        since_ms=options.since,
        until_ms=options.until,
        physical_offset=options.physical_offset,
        body=options.body,
        delay_levels=options.delay_levels,
    )
    problems: list[str] = []

    def on_damage(text: str) -> None:
        problems.append(text)
        print(f"rmq-store: {text}", file=sys.stderr)

    delays_ms = delays_of(wanted)
    check_topic(options.directory, wanted)
    if options.output == "table":
        print(TABLE_HEAD)
    # The bar on the terminal would be torn by messages there.
    is_filed = not sys.stdout.isatty()
    for stored in dump(options.directory, wanted, on_damage, show_progress=is_filed):
        print(as_table_row(stored) if options.output == "table" else as_line(stored, delays_ms))
    return EXIT_DAMAGED if problems else EXIT_CLEAN


def _add_stats(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "stats",
        help="show disk usage",
        description="Show messages and bytes by topic, size and hour, and disk usage by part of the store.",
        allow_abbrev=False,
    )
    _add_directory(command)
    command.add_argument("--json", action="store_true", help="print one JSON document")
    _add_jobs(command)
    command.set_defaults(run=_stats)


def _stats(options: argparse.Namespace) -> int:
    from .stats import statistics  # noqa: PLC0415

    found = statistics(options.directory, jobs=options.jobs)
    if options.json:
        print(json.dumps(found.as_json(), ensure_ascii=False, indent=1))
    else:
        print("\n".join(found.lines()))
    return EXIT_CLEAN


def _add_repair(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "repair",
        help="rebuild queues and index from the log",
        description="Rebuild queues and index of a stopped broker from its log. The old folders are kept as "
        "NAME.before-repair-TIME. Exit code 1: done, but a part of the log is damaged.",
        allow_abbrev=False,
    )
    _add_directory(command)
    command.add_argument("--dry-run", action="store_true", help="only show the result of a rebuild")
    command.add_argument(
        "--truncate-at",
        type=_whole,
        metavar="OFFSET",
        help="cut the log off at OFFSET; without this option the log is never changed",
    )
    command.add_argument("--discard", action="store_true", help="do not keep the replaced files")
    command.add_argument("--no-index", action="store_true", help="leave the index as it is")
    command.add_argument(
        "--queue-file-bytes",
        type=_positive,
        metavar="N",
        help="the broker's mappedFileSizeConsumeQueue; default: as in the old queues",
    )
    command.add_argument(
        "--batch-queue-file-bytes",
        type=_positive,
        metavar="N",
        help="the same for queues of batches: the broker's mapperFileSizeBatchConsumeQueue",
    )
    command.add_argument(
        "--index-entries",
        type=_positive,
        metavar="N",
        help="the broker's maxIndexNum; default: as in the old files",
    )
    _add_layout(command)
    command.set_defaults(run=_repair)


def _repair(options: argparse.Namespace) -> int:
    from .repair import RepairOptions, repair  # noqa: PLC0415

    report = repair(
        options.directory,
        RepairOptions(
            truncate_at=options.truncate_at,
            dry_run=options.dry_run,
            discard=options.discard,
            with_index=not options.no_index,
            delay_levels=options.delay_levels,
            index_slots=options.index_slots,
            index_entries=options.index_entries,
            queue_file_bytes=options.queue_file_bytes,
            batch_queue_file_bytes=options.batch_queue_file_bytes,
            jobs=options.jobs,
        ),
    )
    print("\n".join(report.lines(dry_run=options.dry_run)))
    return EXIT_DAMAGED if report.problem_count else EXIT_CLEAN


def _add_directory(command: argparse.ArgumentParser) -> None:
    command.add_argument("directory", metavar="DIR", type=Path, help="the broker's storePathRootDir")


def _add_delay_levels(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--delay-levels",
        type=_delay_levels,
        default=DEFAULT_DELAY_LEVELS,
        metavar="LEVELS",
        help="the broker's messageDelayLevel, if it is not Apache's default",
    )


def _add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--jobs", type=_positive, metavar="N", help="number of processes (default: one per processor)"
    )


def _add_layout(command: argparse.ArgumentParser) -> None:
    _add_delay_levels(command)
    command.add_argument(
        "--index-slots",
        type=_positive,
        metavar="N",
        help="the broker's maxHashSlotNum; default: determined from the files",
    )
    command.add_argument(
        "--jobs", type=_positive, metavar="N", help="number of processes (default: one per processor)"
    )


def _positive(text: str) -> int:
    value = _whole(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return value


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _time_ms(text: str) -> int:
    """Parse a time into milliseconds since 1970 UTC; a time without a zone is local time."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: give ms since 1970, or ISO 8601 as in 2026-01-31T12:00:00+01:00"
        ) from None


def _delay_levels(text: str) -> str:
    try:
        parse_delay_levels(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


if __name__ == "__main__":
    sys.exit(main())

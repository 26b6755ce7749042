"""Parsing of the output of foreign programs: one JSON object a line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.processes import Finished

Event = dict[str, Any]
Option = str | int | float | bool | None | Mapping[str, object] | Sequence[str]

_FILL = "abcdefghijklmnopqrstuvwxyz"
_EXIT_BAD_COMMAND = 2


class ForeignProgramFailed(Exception):
    """The program itself failed (no result line, bad command line); the text holds its output."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The events of one command. `result` is the last one; `ok` says whether the client succeeded."""

    events: tuple[Event, ...]
    details: str

    @property
    def result(self) -> Event:
        return self.events[-1]

    @property
    def ok(self) -> bool:
        return bool(self.result["ok"])

    @property
    def messages(self) -> list[Event]:
        """The messages that a consumer received, in order of arrival."""
        return [event for event in self.events if event["event"] == "message"]

    @property
    def sent(self) -> list[Event]:
        """One entry per answered send: index, count, status, msgId, queueId, queueOffset …"""
        return list(self.result.get("results", []))

    @property
    def error(self) -> Event | None:
        """The first error: class, code, remark, message, causes. None if there was none."""
        if "error" in self.result:
            return dict(self.result["error"])
        errors = self.result.get("errors") or [None]
        return None if errors[0] is None else dict(errors[0])

    def check(self) -> Outcome:
        """Return the outcome if `ok`; otherwise AssertionError with all output."""
        assert self.ok, self.details
        return self

    def __str__(self) -> str:
        return self.details


def parse_events(stdout: str) -> tuple[Event, ...]:
    return tuple(json.loads(line) for line in stdout.splitlines() if line)


def outcome_of(finished: Finished) -> Outcome:
    """The outcome of a process that ended; ForeignProgramFailed if it wrote no result."""
    try:
        events = parse_events(finished.stdout)
    except ValueError as error:
        raise ForeignProgramFailed(f"a line is not JSON ({error}): {finished}") from error
    if finished.exit_code != 0 or not events or events[-1]["event"] != "result":
        raise ForeignProgramFailed(str(finished))
    return Outcome(events=events, details=str(finished))


def outcome_in_shell(events: Sequence[Event], command: Sequence[str]) -> Outcome:
    """The outcome of one command in a shell; ForeignProgramFailed if the command was invalid."""
    details = "\n".join([" ".join(command), *(json.dumps(event) for event in events)])
    if "usage" in events[-1]:
        raise ForeignProgramFailed(details)
    return Outcome(events=tuple(events), details=details)


def command_line(words: Sequence[str], options: Mapping[str, Option]) -> list[str]:
    """`("send",), {"topic": "T", "vip": True, "property": {"a": 1}}` → send --topic T --vip --property a=1.

    Underscores become hyphens; None and False leave an option out; a list or a mapping repeats it.
    """
    arguments = list(words)
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(option)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                arguments += [option, f"{key}={item}"]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            for item in value:
                arguments += [option, item]
        else:
            arguments += [option, str(value)]
    return arguments


def expected_body(index: int, size: int = 32) -> bytes:
    """The body that the Java, Go and Node programs give to message number `index`."""
    text = f"{index:08d}:" + _FILL * (size // len(_FILL) + 1)
    return text[:size].encode()


def sha256(body: bytes) -> str:
    """As in the `bodySha256` of a received message."""
    return hashlib.sha256(body).hexdigest()

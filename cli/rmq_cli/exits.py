"""Exit codes for scripts, and the one place that turns errors into them.

| code | meaning |
|---|---|
| 0 | done |
| 1 | failed, or declined at the prompt |
| 2 | the command cannot work: a wrong option, value or profile |
| 3 | the topic, group, message or user does not exist |
| 4 | no answer from a name server or broker; whether it acted may be unknown |
| 5 | refused: no or wrong access keys, or a right is missing |
| 6 | a condition is not met: the lag is above --fail-above, or messages of --count did not come |
| 7 | it exists already |
| 130 | interrupted |
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from rmq_client import (
    AlreadyExists,
    ClientError,
    GroupNotFound,
    NotFound,
    PermissionDenied,
    TopicNotFound,
    UnreachableError,
    UsageError,
)


class Exit(IntEnum):
    """The exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    REFUSED = 5
    CONDITION = 6
    EXISTS = 7
    INTERRUPTED = 130


class CommandFailed(Exception):
    """Ends a command with a message and an exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


# The first class that an error belongs to decides.
_CODES: Final[tuple[tuple[type[ClientError], Exit], ...]] = (
    (AlreadyExists, Exit.EXISTS),
    (TopicNotFound, Exit.NOT_FOUND),
    (GroupNotFound, Exit.NOT_FOUND),
    (NotFound, Exit.NOT_FOUND),
    (UsageError, Exit.USAGE),
    (PermissionDenied, Exit.REFUSED),
    (UnreachableError, Exit.UNREACHABLE),
)


def exit_code(error: ClientError) -> Exit:
    """Return the exit code for an error of the SDK."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)

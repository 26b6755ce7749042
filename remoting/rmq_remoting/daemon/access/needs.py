"""Needs of requests: what a user's rules must allow. Each daemon has a table with the needs of its codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from .policies import Action, Resource

if TYPE_CHECKING:
    from ...command import RemotingCommand

Actions = tuple[Action, ...]

_SHORT_CODE_MASK: Final = 0xFFFF

_T = TypeVar("_T")


class Need(NamedTuple):
    """A resource of a request, and the actions of which one must be allowed."""

    resource: Resource
    actions: Actions


class NeedsTable(Protocol):
    """Finds the needs of requests to one daemon."""

    def of(self, request: RemotingCommand) -> list[Need]:
        """Return all needs of a request; none for one that every known user may make.

        Raises HeaderDecodeError, BodyError.
        """

    def is_administration(self, code: int) -> bool:
        """Whether a code is one of operators and tools."""


def with_short_code(code: int) -> set[int]:
    """Return a code, and what a binary header has of it: its lower 16 bits."""
    return {code, code & _SHORT_CODE_MASK}


def with_short_codes(table: Mapping[int, _T]) -> dict[int, _T]:
    """Return a table in which a code is found by its lower 16 bits, too."""
    return {known: value for code, value in table.items() for known in with_short_code(code)}

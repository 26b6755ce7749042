"""Refused changes of users and rules."""

from __future__ import annotations

from ...codes import ResponseCode
from ...errors import CommandError


class AccessChangeRefused(CommandError):
    """A change of users or rules that is refused, answered NO_PERMISSION as by Apache's broker.

    The message never contains a password.
    """

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)

    def __str__(self) -> str:
        return self.remark


class UserProblem(AccessChangeRefused):
    """A change of users that is refused."""


class PolicyProblem(AccessChangeRefused):
    """A policy that is refused; the message names the rule and the allowed values."""

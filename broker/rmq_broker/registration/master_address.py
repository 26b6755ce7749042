"""The addresses of a group's master."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """A master's port of replication and its port of requests, each host:port; empty: not known."""

    ha: str
    clients: str

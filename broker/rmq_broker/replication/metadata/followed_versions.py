"""The versions of the master's tables that a replica has taken over, kept in `replicaMetadata.json`.

A table whose version is older than the one taken over before was lost or restored on the master. Nobody has
deleted the topics and groups that it lacks, so the replica keeps its own.
"""

from __future__ import annotations

from pydantic import Field

from rmq_remoting.bodies.base import Body
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.integers import Int64


class _Saved(Body):
    versions: dict[str, DataVersion] = Field(default_factory=dict)
    topics_log_end: Int64 | None = None


class FollowedVersions:
    """Data versions by the name of the table.

    `topics_log_end`: the end of this log when the topics were asked for that were taken over last; None: they
    never were.
    """

    def __init__(self) -> None:
        self._versions: dict[str, DataVersion] = {}
        self.topics_log_end: int | None = None

    def begin_with(self, name: str, own: DataVersion) -> None:
        """Begin with the version of this broker's own table, if none was taken over before."""
        self._versions.setdefault(name, own)

    def is_older(self, name: str, version: DataVersion) -> bool:
        """Whether a master's version is older than the one taken over before."""
        before = self._versions.get(name, version)
        return (version.state_version, version.counter) < (before.state_version, before.counter)

    def taken_over(self, name: str, version: DataVersion) -> bool:
        """Take note of a version; tell whether it is new."""
        is_new = self._versions.get(name) != version
        self._versions[name] = version
        return is_new

    def encode(self) -> bytes:
        """Return the content of the file."""
        return _Saved(versions=self._versions, topics_log_end=self.topics_log_end).encode()

    def decode(self, content: bytes) -> None:
        """Load the content of the file. Raises BodyError."""
        saved = _Saved.decode(content)
        self._versions, self.topics_log_end = saved.versions, saved.topics_log_end

"""The content of `consumerOffset.json`."""

from __future__ import annotations

from pydantic import Field

from rmq_remoting.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq_remoting.integers import Int32, Int64


class SavedOffsets(ConsumerOffsetSerializeWrapper):
    """The file in Apache's format, plus members that Apache's broker ignores.

    `reset_marks`: pending resets. `own_commits`: commits that a replica took while its master was away.
    """

    own_commits: dict[str, dict[Int32, Int64]] = Field(default_factory=dict)
    reset_marks: dict[str, dict[Int32, Int64]] = Field(default_factory=dict)

"""Another master of the cluster: it stores the messages that a replica delivers while it acts as the master.

The log of a replica accepts nothing but the bytes of its master's log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from .inner_message import InnerMessage

# The pause after a failure, before the messages are sent again.
ELSEWHERE_RETRY_MS: Final = 1000


class Elsewhere(Protocol):
    """Stores messages with another broker."""

    @property
    def is_used(self) -> bool:
        """Whether this broker is a replica, so that its messages have to be stored elsewhere."""

    async def put_all(self, messages: Sequence[InnerMessage]) -> list[str]:
        """Store messages in their topics; return for each why it is not stored, empty if it is."""

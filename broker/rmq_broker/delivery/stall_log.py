"""Log once that a background delivery has stalled, and once that it goes on."""

from __future__ import annotations

import logging


class StallLog:
    """Logs when a delivery stalls and when it resumes, but not each failed attempt in between."""

    def __init__(self, log: logging.Logger, messages: str) -> None:
        """`messages` names the messages that are delivered, as "timed messages"."""
        self._log = log
        self._messages = messages
        self._is_stalled = False

    def stalled(self, cause: str) -> None:
        """The store did not accept a message, for this cause."""
        if not self._is_stalled:
            self._is_stalled = True
            self._log.warning("delivery of due %s stalled, will retry cause=%s", self._messages, cause)

    def delivered(self) -> None:
        """The store accepted a message."""
        if self._is_stalled:
            self._is_stalled = False
            self._log.info("delivery of due %s resumed", self._messages)

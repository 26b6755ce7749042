"""Saying once that something does not go on, and once that it does again."""

from __future__ import annotations

import logging


class Trouble:
    """What hinders messages (`what`) from being delivered; told when it comes and when it has gone."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._reason = ""

    def tell(self, reason: str) -> None:
        """The reason as of now, empty for none."""
        if bool(reason) != bool(self._reason):
            if reason:
                self._log.warning("%s wait, though they are due: %s", self._what, reason)
            else:
                self._log.info("%s are delivered again", self._what)
        self._reason = reason

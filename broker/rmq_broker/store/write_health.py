"""Whether messages are accepted, and if not, why."""

from __future__ import annotations

from threading import Lock


class WriteHealth:
    """Several may have a reason against accepting messages; each takes only its own back."""

    def __init__(self) -> None:
        # The reason that senders are told; None: messages are accepted. Read for each message.
        self.refusal: str | None = None
        self._reasons: dict[str, str] = {}
        self._changing = Lock()

    def refuse(self, cause: str, reason: str) -> None:
        """From now on nothing is accepted, because of `cause`; from any thread."""
        with self._changing:
            self._reasons[cause] = reason
            self.refusal = next(iter(self._reasons.values()))

    def allow(self, cause: str) -> None:
        """`cause` is no reason any more."""
        with self._changing:
            self._reasons.pop(cause, None)
            self.refusal = next(iter(self._reasons.values()), None)

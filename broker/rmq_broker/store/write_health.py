"""Whether messages are accepted, and the causes if they are refused."""

from __future__ import annotations

from threading import Lock


class WriteHealth:
    """Causes to refuse messages. Each part of the store adds and removes its own cause, from any thread."""

    def __init__(self) -> None:
        # The reason in the answers to producers; None if messages are accepted. Read for each message.
        self.refusal: str | None = None
        self._reasons: dict[str, str] = {}
        self._changing = Lock()

    def refuse(self, cause: str, reason: str) -> None:
        """Refuse messages from now on because of `cause`."""
        with self._changing:
            self._reasons[cause] = reason
            self.refusal = next(iter(self._reasons.values()))

    def allow(self, cause: str) -> None:
        """Remove `cause`; messages are accepted if there is no other."""
        with self._changing:
            self._reasons.pop(cause, None)
            self.refusal = next(iter(self._reasons.values()), None)

    def refusal_besides(self, cause: str) -> str | None:
        """Return why messages are refused, were it not for `cause`; None if they would be accepted."""
        with self._changing:
            return next((reason for each, reason in self._reasons.items() if each != cause), None)

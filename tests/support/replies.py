"""A reply that records its outcome: an event for tests of code without an event loop."""

from __future__ import annotations

from rmq_remoting.command import RemotingCommand


class RecordingReply:
    """Behaves like a future towards the sender of a request."""

    def __init__(self) -> None:
        self.outcomes: list[RemotingCommand | BaseException] = []
        self.is_cancelled = False

    def done(self) -> bool:
        return self.is_cancelled or bool(self.outcomes)

    def set_result(self, result: RemotingCommand, /) -> None:
        self._record(result)

    def set_exception(self, exception: BaseException, /) -> None:
        self._record(exception)

    def _record(self, outcome: RemotingCommand | BaseException) -> None:
        assert not self.done(), f"a second outcome: {outcome!r}"
        self.outcomes.append(outcome)

    @property
    def codes(self) -> list[int]:
        """The codes of the responses."""
        return [outcome.code for outcome in self.outcomes if isinstance(outcome, RemotingCommand)]

    @property
    def errors(self) -> list[BaseException]:
        """The errors."""
        return [outcome for outcome in self.outcomes if isinstance(outcome, BaseException)]

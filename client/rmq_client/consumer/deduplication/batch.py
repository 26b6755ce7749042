"""The messages of one call of a listener: which of them are new, and what their outcome means."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmq_remoting.message import MessageExt

from ...errors import UsageError
from ..processing.listener import (
    ConsumeContext,
    ConsumeResult,
    ListenerOutcome,
    OrderlyContext,
)
from .store import ClaimResult


@dataclass(slots=True)
class Batch:
    """Messages with their keys and claims. Messages of one batch with the same key share a claim."""

    messages: list[MessageExt]
    keys: list[str]
    claims: dict[str, ClaimResult] = field(default_factory=dict)

    def new_messages(self) -> list[MessageExt]:
        """Return the messages that the listener gets, one for each new key."""
        taken: set[str] = set()
        found = []
        for message, key in zip(self.messages, self.keys, strict=True):
            if self.claims[key] is ClaimResult.NEW and key not in taken:
                taken.add(key)
                found.append(message)
        return found

    def claimed(self) -> list[str]:
        """Return the keys that this batch has claimed."""
        return [key for key, claim in self.claims.items() if claim is ClaimResult.NEW]

    def processed(self, outcome: ListenerOutcome, none_means: ConsumeResult, context: object) -> set[str]:
        """Return the keys of the claimed messages that the listener has consumed.

        Raises UsageError for an orderly listener that commits by itself.
        """
        if isinstance(context, OrderlyContext) and not context.auto_commit:
            raise UsageError(
                "context.auto_commit=False: a deduplicated listener cannot commit by itself, because a "
                "message counts as processed when its call ends"
            )
        result = none_means if outcome is None else outcome
        own = self.claimed()
        if result is ConsumeResult.LATER:
            return set()
        # As everywhere, COMMIT and ROLLBACK are results of listeners that commit by themselves.
        if isinstance(context, ConsumeContext) and context.ack_index is not None:
            own = own[: max(0, context.ack_index + 1)]
        return set(own)

    def result(self, processed: set[str], context: object) -> ConsumeResult:
        """Return the result for all messages of the call; in the context, how many from the front."""
        consumed = 0
        for key in self.keys:
            if self.claims[key] is not ClaimResult.DONE and key not in processed:
                break
            consumed += 1
        if consumed == len(self.keys):
            if isinstance(context, ConsumeContext):
                context.ack_index = None
            return ConsumeResult.SUCCESS
        if consumed and isinstance(context, ConsumeContext):
            context.ack_index = consumed - 1
            return ConsumeResult.SUCCESS
        return ConsumeResult.LATER

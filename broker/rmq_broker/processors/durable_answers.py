"""Responses that wait until a message is durable: on disk (SYNC_FLUSH), and on replicas (SYNC_MASTER)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.pending_answer import PendingAnswer

from ..store.api import Durability

if TYPE_CHECKING:
    from ..store.api import MessageStore


class _DurableAnswer(PendingAnswer):
    """Given when the wait for a message's durability ends."""

    __slots__ = ("_answer_of",)

    def __init__(self, answer_of: Callable[[Durability], Answer]) -> None:
        super().__init__()
        self._answer_of = answer_of

    # Not `__call__`: compiled, that of a class with a base class crashes.
    def wait_ended(self, durability: Durability) -> None:
        """Give the answer: the listener of the wait."""
        try:
            answer = self._answer_of(durability)
        except Exception as error:
            self.fail(error)
        else:
            self.give(answer)


def answer_when_durable(store: MessageStore, answer_of: Callable[[Durability], Answer]) -> PendingAnswer:
    """Return the future answer to a request whose message is being flushed or replicated.

    Only with `answers_when_durable`. `answer_of` makes the answer from the durability of the message. An
    error that it raises becomes the answer.
    """
    answer = _DurableAnswer(answer_of)
    store.when_durable(answer.wait_ended)
    return answer


def respond_when_durable(store: MessageStore, response: RemotingCommand) -> Result:
    """Return the response, at once or when the message is durable.

    A flush or a replica that takes too long is no error, as in Apache's broker. A failed flush is one.
    """
    if not store.answers_when_durable:
        return response

    def answer_of(durability: Durability) -> Answer:
        if durability is Durability.FLUSH_FAILED:
            raise CommandError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"it may be lost: {store.unavailable_reason}"
            )
        return response

    return answer_when_durable(store, answer_of)


def respond_if_durable(
    store: MessageStore,
    response: RemotingCommand,
    not_on_disk: str,
    code: int = ResponseCode.SERVICE_NOT_AVAILABLE,
) -> Result:
    """Return the response, at once or when the message is durable.

    A flush that failed, and a flush or a replica that takes too long, become an error. A SYNC_MASTER without
    replicas goes on alone: that is none.
    """
    if not store.answers_when_durable:
        return response

    def answer_of(durability: Durability) -> Answer:
        if durability is Durability.DURABLE or durability is Durability.NO_REPLICA:
            return response
        raise CommandError(code, not_on_disk)

    return answer_when_durable(store, answer_of)

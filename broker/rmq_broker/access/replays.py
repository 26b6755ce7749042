"""Protection against sends that were recorded and are sent again (`signatureReplayWindowSeconds`).

Apache's access control has none (RocketMQ 5.3.3): a signed request is valid for as long as its user is. Only
sends can be protected without a change of the clients, because only sends carry a time. Heartbeats, pulls and
commits of offsets repeat the same bytes honestly.

Clients repeat sends honestly, too. Apache's Java client sends the very same bytes again, in an asynchronous
send whose connection broke (MQClientAPIImpl.onExceptionImpl). So a send from the host of the first one gets
the answer of the first one, and is not stored again. From another host it is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon.exposition import Family, counter, gauge
from rmq_remoting.errors import CommandError, shown
from rmq_remoting.framing import FrameDecoder
from rmq_remoting.pending_answer import PendingAnswer
from rmq_remoting.repeated_event import RepeatedEvent
from rmq_remoting.signing import ACCESS_KEY, SIGNATURE

from .replay_window import ReplayWindow, ServedSend
from .signed_times import signed_time_ms

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.dispatch import Processor

log = logging.getLogger("rmq.audit")

_LOG_SECONDS: Final = 1.0
# With these codes the messages are in the store.
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
# Two messages with this property are the same message. Apache's clients and the SDK set it; ali-ons and the
# Spark connector do not. Such clients retry a send that is answered SYSTEM_BUSY.
_UNIQUE_KEY: Final = "UNIQ_KEY\x01"
_UNIQUE_KEY_BYTES: Final = _UNIQUE_KEY.encode()
# An answer that is no encoded frame.
_ANSWER_BYTES: Final = 1024


class ReplayProtection:
    """Serves each signed send once."""

    def __init__(self, window: ReplayWindow) -> None:
        self._window = window
        self._refusal = RepeatedEvent(_LOG_SECONDS)
        self.refused = 0
        self.answered_again = 0

    def protect(self, processor: Processor) -> Processor:
        """Return a processor of sends that passes each signed send on once."""
        return partial(self._serve, processor)

    def _serve(self, processor: Processor, connection: Connection, request: RemotingCommand) -> Result:
        """Answer a send. Raises CommandError for one that may have been recorded."""
        fields = request.ext_fields
        if ACCESS_KEY not in fields:  # the code is in `authenticationWhitelist`, and nothing was verified
            return processor(connection, request)
        signature, window = fields[SIGNATURE], self._window
        host = connection.remote_address[0]
        try:
            served = window.find(signature)
            if served is not None:
                return self._again(served, host, request)
            served = window.enter(signature, signed_time_ms(request), host)
        except CommandError as refusal:
            self._refused(connection, request, refusal)
            raise
        try:
            result = processor(connection, request)
        except BaseException:
            window.forget(signature)
            raise
        if isinstance(result, PendingAnswer):
            result = result.as_future()
        if isinstance(result, asyncio.Future):
            served.pending = result
            result.add_done_callback(partial(self._done, signature))
        else:
            self._answered(signature, result)
        return result

    def _again(self, served: ServedSend, host: str, request: RemotingCommand) -> Result:
        """Return the answer of the first send to one with the same bytes. Raises CommandError."""
        if served.host != host:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                "a send with this signature came from another host: this one was recorded and sent again",
            )
        if not _has_unique_key(request):
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                "the broker has served an equal send of the same millisecond, and without unique keys these "
                "may be two messages: send this one again with a new bornTimestamp",
            )
        self.answered_again += 1
        if served.pending is None:
            return _readdressed(served.answer, request)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        served.pending.add_done_callback(partial(_pass_on, answer, request))
        return answer

    def _done(self, signature: str, result: asyncio.Future[Answer]) -> None:
        if result.cancelled() or result.exception() is not None:
            self._window.forget(signature)
        else:
            self._answered(signature, result.result())

    def _answered(self, signature: str, answer: Answer) -> None:
        if type(answer) is bytes:
            self._window.answered(signature, answer, len(answer))
        elif isinstance(answer, RemotingCommand) and answer.code in _STORED:
            self._window.answered(signature, answer, _ANSWER_BYTES)
        else:
            self._window.forget(signature)

    def _refused(self, connection: Connection, request: RemotingCommand, refusal: CommandError) -> None:
        self.refused += 1
        if count := self._refusal.occurred():
            log.warning(
                "signed send not served user=%s code=%d peer=%s refused=%d cause=%s",
                shown(request.ext_fields[ACCESS_KEY]),
                request.code,
                connection.peer,
                count,
                refusal.remark,
            )

    def collect(self) -> Iterator[Family]:
        """Yield the metrics."""
        window = self._window
        yield counter(
            "rmq_access_replays_refused_total",
            "Signed sends refused because they may have been recorded: by time, or as served before.",
            self.refused,
        )
        yield counter(
            "rmq_access_replays_answered_total",
            "Signed sends that a host repeated, answered again and not stored again.",
            self.answered_again,
        )
        yield gauge(
            "rmq_access_replay_window_bytes", "Memory of the signatures within the window.", window.size_bytes
        )
        yield counter(
            "rmq_access_replay_window_closed_seconds_total",
            "Seconds whose signatures were given up for lack of memory; further sends of these are refused.",
            window.closed_seconds,
        )


def _has_unique_key(request: RemotingCommand) -> bool:
    """Whether a message has a unique key; in a batch, whether one of them has."""
    fields = request.ext_fields
    properties = fields.get("i") or fields.get("properties") or ""
    return _UNIQUE_KEY in properties or _UNIQUE_KEY_BYTES in request.body


def _readdressed(answer: Answer, request: RemotingCommand) -> Answer:
    """Return the answer to another request with the same content."""
    if isinstance(answer, bytes):
        (command,) = FrameDecoder().feed(answer)
    elif answer is not None:
        command = RemotingCommand(
            answer.code,
            answer.flag,
            answer.opaque,
            remark=answer.remark,
            ext_fields=dict(answer.ext_fields),
            body=answer.body,
            serialization=answer.serialization,
        )
    else:
        return None
    command.opaque = request.opaque
    return command


def _pass_on(answer: asyncio.Future[Answer], request: RemotingCommand, first: asyncio.Future[Answer]) -> None:
    """Settle the answer to a repeated send as that of the first one."""
    if answer.done():
        return
    if first.cancelled():
        answer.cancel()
    elif (error := first.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(_readdressed(first.result(), request))

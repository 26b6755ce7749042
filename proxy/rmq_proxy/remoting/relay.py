"""Requests that the proxy passes on to one broker, and the broker's responses.

Source: Apache RocketMQ 5.3.3, AbstractRemotingActivity, SendMessageActivity, PullMessageActivity,
PopMessageActivity and ConsumerManagerActivity.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from rmq_client.errors import ClientError
from rmq_remoting.answers import Answer, HeldAnswer
from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rmq_remoting.bodies.pop import BatchAckMessageRequestBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError, ProtocolError, RemotingError, RequestError, TooManyRequests
from rmq_remoting.tasks import cancel_all
from rmq_remoting.tiers import InlineTier

from ..brokers import Brokers
from .commands import answer_to, broker_name_of, forwarded, refusal_for
from .lookup import Lookup
from .sessions import Broker, Sessions

# A broker may hold a request for as long as its client asks for, and then has this time to answer.
_AFTER_HOLD_SECONDS: Final = 10.0
# Clients ask for 30 s at most. A wrong number must not keep a request for days.
_LONGEST_HOLD_SECONDS: Final = 3600.0
_HOLD_FIELDS: Final = {
    RequestCode.PULL_MESSAGE: "suspendTimeoutMillis",
    RequestCode.LITE_PULL_MESSAGE: "suspendTimeoutMillis",
    RequestCode.POP_MESSAGE: "pollTime",
    RequestCode.NOTIFICATION: "pollTime",
}

Work = Callable[[Connection, int, RemotingCommand], Coroutine[Any, Any, Answer]]


class Relay:
    """Passes requests on, and answers held ones at a graceful shutdown. Belongs to one loop."""

    def __init__(self, sessions: Sessions, lookup: Lookup, brokers: Brokers, timeout_seconds: float) -> None:
        """`timeout_seconds` bounds the wait for a broker that holds nothing."""
        self._sessions = sessions
        self._lookup = lookup
        self._brokers = brokers
        self._timeout_seconds = timeout_seconds
        self._held: dict[HeldAnswer, tuple[int, RemotingCommand]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_released = False

    # --- processors ---

    async def by_name(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """Pass a request on to the broker that it names. Raises CommandError, ProtocolError."""
        return await self._passed_on(client, code, request, broker_name_of(code, request))

    async def lock(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """41, 42: pass locks on to the broker of the queues. Raises CommandError, BodyError."""
        queues = LockBatchRequestBody.decode_request(request.body).mq_set
        names = {queue.broker_name for queue in queues}
        if not names:
            return request.response(ResponseCode.SUCCESS, body=LockBatchResponseBody().encode())
        if len(names) > 1:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"the queues to lock are of {len(names)} brokers: send one request for each broker",
            )
        return await self._passed_on(client, code, request, names.pop())

    async def batch_ack(self, client: Connection, code: int, request: RemotingCommand) -> Answer:
        """200151: pass acknowledgements on to the broker that the body names. Raises as `lock`."""
        name = BatchAckMessageRequestBody.decode_request(request.body).broker_name
        return await self._passed_on(client, code, request, name or broker_name_of(code, request))

    def hold(
        self, client: Connection, code: int, request: RemotingCommand, tier: InlineTier, work: Work
    ) -> asyncio.Future[Answer]:
        """Let `work` answer a request that the broker may hold. It counts in `tier` until it is answered."""
        answer = HeldAnswer()
        if self._is_released:
            asyncio.get_running_loop().call_soon(_end, answer, _released(code, request))
            return answer
        began = time.monotonic()
        tier.enter(client)
        self._held[answer] = (code, request)

        def ended() -> None:
            del self._held[answer]
            tier.leave(client, time.monotonic() - began)

        self._start(self._held_until(answer, work(client, code, request), ended))
        return answer

    # --- life ---

    def release(self) -> None:
        """Answer all held requests as if their time had ended, and later ones at once."""
        self._is_released = True
        for answer, (code, request) in list(self._held.items()):
            _end(answer, _released(code, request))

    async def stop(self) -> None:
        """Give up the requests that brokers still hold."""
        await cancel_all(self._tasks)

    # --- the way to the broker ---

    async def send(
        self, client: Connection, broker: Broker, code: int, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Send a request, and return the answer for the client; None for a one-way request.

        Raises RequestError.
        """
        session = self._sessions.of(client)
        command = forwarded(code, request)
        try:
            if request.is_oneway:
                await session.oneway(broker, command)
                return None
            response = await session.request(broker, command, self._timeout_of(code, request))
        except TooManyRequests:  # a bound of the proxy: the broker is where it was
            raise
        except RequestError:
            self._brokers.lost(broker.address)
            raise
        except ValueError as error:  # longer than a frame, as JSON
            raise CommandError(ResponseCode.MESSAGE_ILLEGAL, f"{error}: send smaller messages") from error
        return answer_to(request, response)

    async def _passed_on(self, client: Connection, code: int, request: RemotingCommand, name: str) -> Answer:
        try:
            return await self.send(client, await self._lookup.named(name), code, request)
        except (ClientError, RequestError) as error:
            raise refusal_for(error) from error

    def _timeout_of(self, code: int, request: RemotingCommand) -> float:
        field = _HOLD_FIELDS.get(RequestCode(code))
        if field is None:
            return self._timeout_seconds
        text = request.ext_fields.get(field, "0")
        seconds = int(text) / 1000 if text.isascii() and text.isdecimal() else 0.0
        return min(seconds, _LONGEST_HOLD_SECONDS) + _AFTER_HOLD_SECONDS

    async def _held_until(
        self, answer: HeldAnswer, work: Coroutine[Any, Any, Answer], ended: Callable[[], None]
    ) -> None:
        try:
            _end(answer, await work)
        except (RemotingError, ProtocolError) as error:
            if not answer.done():
                answer.set_exception(error)
        finally:
            ended()
            if not answer.done():
                answer.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _end(answer: HeldAnswer, result: Answer) -> None:
    if not answer.done():
        answer.set_result(result)


def _released(code: int, request: RemotingCommand) -> RemotingCommand:
    """Return the answer to a held request for which no message came in time."""
    if code == RequestCode.POP_MESSAGE:
        fields = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
        return request.response(ResponseCode.POLLING_TIMEOUT, "the proxy stops", fields)
    if code == RequestCode.NOTIFICATION:
        return request.response(ResponseCode.SUCCESS, None, {"hasMsg": "false", "pollingFull": "false"})
    offset = request.ext_fields.get("queueOffset", "0")
    fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": offset,
        "minOffset": "0",
        "maxOffset": offset,
    }
    return request.response(ResponseCode.PULL_NOT_FOUND, "the proxy stops", fields)

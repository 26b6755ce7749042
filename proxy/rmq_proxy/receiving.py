"""ReceiveMessage, AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

Source: Apache RocketMQ 5.3.3, ReceiveMessageActivity, ReceiveMessageResponseStreamWriter,
PopMessageResultFilterImpl, AckMessageActivity, ChangeInvisibleDurationActivity, ForwardMessageToDLQActivity.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Final

from rmq_client.consumer.subscription import Sql, Subscription
from rmq_client.errors import ClientError, UsageError
from rmq_remoting.bodies.heartbeat import SUBSCRIBE_ALL
from rmq_remoting.message import MessageExt
from rmq_remoting.message_properties import PROPERTY_POP_CK
from rmq_remoting.tasks import cancel_all

from .brokers import Brokers
from .calls import Call
from .client_settings import ClientSettings
from .clients import ClientRegistry
from .held_calls import HeldCalls
from .messages import fill
from .pops import Popped, PopRequest, Pops
from .protocol import definition_pb2 as pb
from .protocol import service_pb2 as rpc
from .protocol.definition_pb2 import Code
from .receipt_handles import ReceiptHandle
from .renewals import Renewals
from .settings import ProxySettings
from .statuses import Refusal, combined, ok, status, status_of
from .validation import check_group, check_invisible_ms, check_topic

log = logging.getLogger("rmq.proxy")

# Clients before this version do not know the code ILLEGAL_POLLING_TIME.
_KNOWS_POLLING_TIME: Final = "5.0.3"
# Attempts of messages of a group that no broker tells the configuration of.
_MOST_ATTEMPTS: Final = 17
# How long a receive waits for the settings of its client. Those of a new client are on their way. After a
# restart of the proxy, Apache's Python client reports its settings within five minutes only.
_SETTINGS_SECONDS: Final = 1.0
# Messages that could not be written to a client become visible again after this time.
_UNDELIVERED_INVISIBLE_MS: Final = 1000


class Receiving:
    """Requests of consumers."""

    def __init__(
        self,
        brokers: Brokers,
        pops: Pops,
        clients: ClientRegistry,
        client_settings: ClientSettings,
        renewals: Renewals,
        settings: ProxySettings,
        held: HeldCalls,
    ) -> None:
        self._brokers = brokers
        self._pops = pops
        self._clients = clients
        self._client_settings = client_settings
        self._renewals = renewals
        self._settings = settings
        self._held = held
        self._tasks: set[asyncio.Task[None]] = set()
        self.undelivered = 0

    async def receive(
        self, call: Call, request: rpc.ReceiveMessageRequest
    ) -> AsyncGenerator[rpc.ReceiveMessageResponse, None]:
        """Yield the status, the messages, and the time of the delivery. A failure is a status, too."""
        undelivered: list[MessageExt] = []
        popping = asyncio.get_running_loop().create_task(self._popped(call, request))
        try:
            popped = await self._held.wait(popping, Popped())
            undelivered += popped.messages
            if popped.messages:
                yield rpc.ReceiveMessageResponse(status=ok())
                for message in popped.messages:
                    response = rpc.ReceiveMessageResponse()
                    fill(response.message, message)
                    yield response
                    undelivered.pop(0)
            else:
                yield rpc.ReceiveMessageResponse(status=_nothing(popped))
        except Exception as error:
            yield rpc.ReceiveMessageResponse(status=status_of(error))
        finally:
            if (
                not popping.done()
            ):  # the client has gone, or the proxy stops; the broker may still find messages
                self._start(self._return_all(call, request, popping))
            for message in undelivered:
                self._start(self._return(call, request, message))
        response = rpc.ReceiveMessageResponse()
        response.delivery_timestamp.FromMilliseconds(int(time.time() * 1000))
        yield response

    async def acknowledge(self, call: Call, request: rpc.AckMessageRequest) -> rpc.AckMessageResponse:
        """Acknowledge messages; each has a status of its own. Raises Refusal."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        works = [self._acknowledged(call, topic, group, entry) for entry in request.entries]
        # Most clients acknowledge one message a call, which needs no task of its own.
        entries = [await works[0]] if len(works) == 1 else await asyncio.gather(*works)
        return rpc.AckMessageResponse(
            status=combined((entry.status.code for entry in entries), "ack message result is empty"),
            entries=entries,
        )

    async def change_invisible(
        self, call: Call, request: rpc.ChangeInvisibleDurationRequest
    ) -> rpc.ChangeInvisibleDurationResponse:
        """Change the time after which a message is redelivered. Raises Refusal, ClientError."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        invisible_ms = check_invisible_ms(
            request.invisible_duration.ToMilliseconds(), 0, self._settings.max_invisible_time_ms
        )
        handle = await self._newest(call, group, request.message_id, request.receipt_handle)
        changed = await self._pops.change_invisible(group, topic, handle, invisible_ms)
        if changed is None:
            text = "changeInvisibleDuration failed: status is abnormal"
            return rpc.ChangeInvisibleDurationResponse(status=status(Code.INTERNAL_SERVER_ERROR, text))
        return rpc.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=str(changed))

    async def forward(
        self, call: Call, request: rpc.ForwardMessageToDeadLetterQueueRequest
    ) -> rpc.ForwardMessageToDeadLetterQueueResponse:
        """Move a message to the group's dead letters. Raises Refusal, ClientError."""
        topic, group = check_topic(request.topic.name), check_group(request.group.name)
        handle = await self._newest(call, group, request.message_id, request.receipt_handle)
        await self._pops.forward_to_dead_letters(group, topic, handle, request.message_id)
        return rpc.ForwardMessageToDeadLetterQueueResponse(status=ok())

    async def stop(self) -> None:
        """Cancel the acknowledgements and forwards that run in the background."""
        await cancel_all(self._tasks)

    # --- a receive ---

    async def _popped(self, call: Call, request: rpc.ReceiveMessageRequest) -> Popped:
        """Pop, and return the messages for the client. Raises Refusal, ClientError."""
        queue = request.message_queue
        topic, group = check_topic(queue.topic.name), check_group(request.group.name)
        if request.batch_size < 1:
            raise Refusal(Code.BAD_REQUEST, f"the batch size is {request.batch_size}, it must be at least 1")
        client = await self._clients.wait_for(call.client_id, _SETTINGS_SECONDS)
        if client is None:
            client = self._clients.report(call.client_id, _assumed_settings(request))
        self._clients.touch(client)
        poll_ms = self._poll_ms(call, request, client.settings)
        renews = request.auto_renew and self._settings.enable_proxy_auto_renew
        invisible_ms = self._settings.default_invisible_time_ms
        if not renews:
            invisible_ms = check_invisible_ms(
                request.invisible_duration.ToMilliseconds(),
                self._settings.min_invisible_time_ms,
                self._settings.max_invisible_time_ms,
            )
        subscription = subscription_of(topic, request.filter_expression)
        broker_name = (await self._brokers.route(topic)).broker_to_receive_from(queue.broker.name)
        if broker_name is None:
            raise Refusal(Code.FORBIDDEN, "no readable queue")
        address = (await self._brokers.route(topic)).address(broker_name)
        if self._brokers.own is not None:
            address = self._brokers.own.address
        if address is None:
            raise Refusal(Code.FORBIDDEN, "no readable queue")
        in_order, max_attempts = await self._client_settings.delivery(client.settings)
        call.slot.release()  # from here on the broker may hold the call
        popped = await self._pops.pop(
            address,
            PopRequest(
                group,
                topic,
                broker_name,
                subscription.data,
                request.batch_size,
                invisible_ms,
                poll_ms,
                in_order,
                request.attempt_id if request.HasField("attempt_id") else None,
            ),
        )
        self._sort_out(popped, subscription, group, topic, max_attempts)
        if renews:
            for message in popped.messages:
                handle = _handle_of(message)
                self._renewals.hold(
                    call.client_id, group, topic, message.msg_id, handle, message.reconsume_times
                )
        return popped

    def _poll_ms(self, call: Call, request: rpc.ReceiveMessageRequest, settings: pb.Settings) -> int:
        """Return for how long the broker may hold the pop. Raises Refusal if the deadline is too near."""
        least, most = self._settings.min_long_polling_ms, self._settings.max_long_polling_ms
        remaining = call.remaining_ms
        if request.HasField("long_polling_timeout"):
            wanted = int(request.long_polling_timeout.ToMilliseconds())
        elif remaining is not None:
            wanted = remaining - int(settings.request_timeout.ToMilliseconds()) // 2
        else:
            wanted = most
        poll_ms = min(max(wanted, least), most)
        if remaining is None or poll_ms <= remaining:
            return poll_ms
        if remaining >= least:
            return remaining
        code = Code.ILLEGAL_POLLING_TIME if call.client_version >= _KNOWS_POLLING_TIME else Code.BAD_REQUEST
        raise Refusal(
            code, "The deadline time remaining is not enough for polling, please check network condition"
        )

    def _sort_out(
        self, popped: Popped, subscription: Subscription, group: str, topic: str, max_attempts: int
    ) -> None:
        """Keep the messages for the client.

        Those with another tag of the same hash code are acknowledged. Those that were delivered too often
        become dead letters.
        """
        wanted: list[MessageExt] = []
        tags = subscription.tags
        for message in popped.messages:
            if tags and message.tags not in tags:
                acknowledgement = self._pops.acknowledge(group, topic, _handle_of(message))
                self._start(self._quietly(acknowledgement, message))
            elif message.reconsume_times >= max_attempts:
                handle = _handle_of(message)
                forward = self._pops.forward_to_dead_letters(group, topic, handle, message.msg_id)
                self._start(self._quietly(forward, message))
            else:
                wanted.append(message)
        popped.messages = wanted

    async def _return_all(
        self, call: Call, request: rpc.ReceiveMessageRequest, popping: asyncio.Task[Popped]
    ) -> None:
        try:
            popped = await popping
        except (ClientError, Refusal):
            return
        for message in popped.messages:
            await self._return(call, request, message)

    async def _return(self, call: Call, request: rpc.ReceiveMessageRequest, message: MessageExt) -> None:
        """Make a message visible again that could not be written to the client."""
        self.undelivered += 1
        group, topic = request.group.name, request.message_queue.topic.name
        handle = _handle_of(message)
        newest = await self._renewals.take(call.client_id, group, message.msg_id, handle)
        change = self._pops.change_invisible(group, topic, newest, _UNDELIVERED_INVISIBLE_MS)
        await self._quietly(change, message)

    async def _quietly(self, work: Coroutine[Any, Any, object], message: MessageExt) -> None:
        """Do work that no request waits for. If it fails, the broker redelivers the message."""
        try:
            await work
        except (ClientError, Refusal) as error:
            log.info(
                "popped message not settled id=%s topic=%s cause=%s; the broker redelivers it",
                message.msg_id,
                message.topic,
                error,
            )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- acknowledgements ---

    async def _acknowledged(
        self, call: Call, topic: str, group: str, entry: rpc.AckMessageEntry
    ) -> rpc.AckMessageResultEntry:
        try:
            handle = await self._newest(call, group, entry.message_id, entry.receipt_handle)
            done = await self._pops.acknowledge(group, topic, handle)
            outcome = ok() if done else status(Code.INTERNAL_SERVER_ERROR, "ack failed: status is abnormal")
        except Exception as error:
            outcome = status_of(error)
        return rpc.AckMessageResultEntry(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=outcome
        )

    async def _newest(self, call: Call, group: str, message_id: str, handle: str) -> ReceiptHandle:
        return await self._renewals.take(call.client_id, group, message_id, ReceiptHandle.parse(handle))


def subscription_of(topic: str, expression: pb.FilterExpression) -> Subscription:
    """Return the subscription to a topic by a filter expression. Raises Refusal."""
    text = expression.expression
    by_properties = expression.type == pb.SQL
    try:
        return Subscription(topic, Sql(text) if by_properties else text or SUBSCRIBE_ALL, 0)
    except UsageError as error:
        raise Refusal(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from error


def _handle_of(message: MessageExt) -> ReceiptHandle:
    return ReceiptHandle.parse(message.properties[PROPERTY_POP_CK])


def _assumed_settings(request: rpc.ReceiveMessageRequest) -> pb.Settings:
    """Return settings of a client that has reported none; order and attempts come from its group."""
    client_type = pb.PUSH_CONSUMER if request.auto_renew else pb.SIMPLE_CONSUMER
    settings = pb.Settings(client_type=client_type)
    settings.subscription.group.CopyFrom(request.group)
    settings.backoff_policy.max_attempts = _MOST_ATTEMPTS
    return settings


def _nothing(popped: Popped) -> pb.Status:
    if popped.is_full:
        return status(Code.TOO_MANY_REQUESTS, "polling full")
    return status(Code.MESSAGE_NOT_FOUND, "no match message" if popped.found else "no new message")

"""Connected producers and consumers, and requests to a running consumer."""

from __future__ import annotations

import asyncio

from rmq_remoting.bodies.connection import Connection, ConsumerConnection, ProducerTableInfo
from rmq_remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetAllProducerInfoRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.message import MessageExt

from ..errors import BrokerError, ClientError, NotFound, RouteError
from .arguments import checked
from .groups import GroupAdmin
from .results import ClientConnection, ConsumeRates, ConsumerState, Delivery, GroupConnections


class ClientAdmin(GroupAdmin):
    """Connected clients."""

    @checked
    async def consumer_ids(self, group: str, topic: str) -> list[str]:
        """Return the client ids of the live consumers of a group, as a broker of the topic knows them.

        The list is empty if no consumer is connected. Raises ClientError.
        """
        route = await self.topic_route(topic)
        for name in route.brokers:
            address = route.broker_address(name)
            if address is not None:
                return await self._consumer_ids(address, self._namespace.wrap(group))
        raise RouteError(f"topic {topic} has no broker with an address: no broker can be asked")

    @checked
    async def group_connections(self, group: str) -> GroupConnections:
        """Return the connected consumers of a group on all masters, and what they subscribe to.

        There are none if no consumer is connected. Raises ClientError.
        """
        name = self._namespace.checked_group(group)
        found = await self._of_each(
            await self._masters(), lambda address: self._consumer_connection(address, name)
        )
        known = {broker: each for broker, each in found.items() if each is not None}
        unwrap = self._namespace.unwrap
        subscriptions = {
            unwrap(topic): data.sub_string
            for each in known.values()
            for topic, data in each.subscription_table.items()
        }
        first = next(iter(known.values()), None)
        return GroupConnections(
            group=group,
            clients=_merged({broker: each.connection_set for broker, each in known.items()}),
            subscriptions=dict(sorted(subscriptions.items())),
            consume_type=None if first is None or first.consume_type is None else first.consume_type.value,
            message_model=None if first is None or first.message_model is None else first.message_model.value,
        )

    @checked
    async def producer_connections(self, group: str | None = None) -> dict[str, list[ClientConnection]]:
        """Return the connected producers of all masters by group, or of one group. Raises ClientError."""
        wanted = None if group is None else self._namespace.wrap(group)
        code, header = RequestCode.GET_ALL_PRODUCER_INFO, GetAllProducerInfoRequestHeader()
        tables = await self._of_each(
            await self._masters(),
            lambda address: self._body(address, code, header, "producers", ProducerTableInfo.decode),
        )
        by_group: dict[str, dict[str, list[Connection]]] = {}
        for broker, table in tables.items():
            for name, infos in table.data.items():
                if wanted in (None, name) and self._namespace.has(name):
                    by_group.setdefault(name, {})[broker] = [
                        Connection(
                            client_id=info.client_id,
                            client_addr=info.remote_ip,
                            language=info.language,
                            version=info.version,
                        )
                        for info in infos
                    ]
        return {
            self._namespace.unwrap(name): list(_merged(brokers)) for name, brokers in sorted(by_group.items())
        }

    @checked
    async def consumer_state(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerState:
        """Ask a running consumer for its state, through a broker that it is connected to.

        `stacks`: also the stacks of its threads. Raises ClientError if no master has the consumer.
        """
        name = self._namespace.checked_group(group)
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=name, client_id=client_id, jstack_enable=stacks
        )
        code, about = RequestCode.GET_CONSUMER_RUNNING_INFO, f"state of consumer {client_id}"
        info = await self._body(
            await self._broker_of(name, client_id), code, header, about, ConsumerRunningInfo.decode
        )
        unwrap = self._namespace.unwrap
        buffered = {queue: each.cached_msg_count for queue, each in info.mq_table.items()}
        popped = {queue: each.wait_ack_count for queue, each in info.mq_pop_table.items()}
        return ConsumerState(
            client_id=client_id,
            properties=dict(info.properties),
            subscriptions={unwrap(each.topic): each.sub_string for each in info.subscription_set},
            queues={
                self._namespace.unwrap_queue(queue): count
                for queue, count in sorted({**popped, **buffered}.items())
            },
            rates={
                unwrap(topic): ConsumeRates(
                    pulled_per_second=each.pull_tps,
                    consumed_per_second=each.consume_ok_tps,
                    failed_per_second=each.consume_failed_tps,
                    pull_ms=each.pull_time_ms,
                    consume_ms=each.consume_time_ms,
                    failed_last_hour=each.consume_failed_msgs,
                )
                for topic, each in info.status_table.items()
            },
            stacks=info.jstack,
        )

    @checked
    async def deliver_message(self, group: str, client_id: str, message: MessageExt) -> Delivery:
        """Let one running consumer consume a stored message now, whatever the group's offsets.

        `message` comes from `view_message` or another query. Offsets do not change. Raises ClientError if the
        consumer is not connected to the message's broker, or does not answer.
        """
        name = self._namespace.checked_group(group)
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=name,
            client_id=client_id,
            msg_id=message.offset_msg_id,
            topic=self._namespace.wrap(message.topic),
        )
        code, about = RequestCode.CONSUME_MESSAGE_DIRECTLY, f"delivery of message {message.msg_id}"
        result = await self._body(
            await self._broker(message.broker_name), code, header, about, ConsumeMessageDirectlyResult.decode
        )
        outcome = "" if result.consume_result is None else result.consume_result.value
        return Delivery(outcome, result.spent_time_ms / 1000, result.remark)

    # --- requests ---

    async def _consumer_ids(self, address: str, group: str) -> list[str]:
        try:
            return await self._api.consumer_ids(address, group)
        except BrokerError as error:
            # Brokers refuse a group without a connected consumer (Apache: "no consumer for this group").
            if error.code == ResponseCode.SYSTEM_ERROR and error.remark.startswith("no consumer "):
                return []
            raise

    async def _consumer_connection(self, address: str, group: str) -> ConsumerConnection | None:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        code, about = RequestCode.GET_CONSUMER_CONNECTION_LIST, f"consumers of group {group}"
        try:
            return await self._body(address, code, header, about, ConsumerConnection.decode)
        except NotFound as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise

    async def _broker_of(self, group: str, client_id: str) -> str:
        """Return the address of a master to which a consumer is connected."""
        masters = await self._masters()
        lists = await asyncio.gather(*(self._consumer_ids(address, group) for address in masters.values()))
        for address, client_ids in zip(masters.values(), lists, strict=True):
            if client_id in client_ids:
                return address
        known = ", ".join(sorted({each for client_ids in lists for each in client_ids})) or "none"
        raise ClientError(f"consumer {client_id} of group {group} is not connected; connected are: {known}")


def _merged(by_broker: dict[str, list[Connection]]) -> tuple[ClientConnection, ...]:
    """Return each client once, with the brokers that it is connected to."""
    brokers: dict[str, list[str]] = {}
    connections: dict[str, Connection] = {}
    for broker, found in by_broker.items():
        for connection in found:
            client_id = connection.client_id or ""
            connections.setdefault(client_id, connection)
            brokers.setdefault(client_id, []).append(broker)
    return tuple(
        ClientConnection(
            client_id=client_id,
            address=connection.client_addr or "",
            language=connection.language.name,
            version=connection.version,
            brokers=tuple(sorted(brokers[client_id])),
        )
        for client_id, connection in sorted(connections.items())
    )

"""Apache's name server and broker for tests that use Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rmq_client import ClientSettings, Message, MessageQueue
from rmq_client.blocking import Admin, Producer
from tests.spark.small_cluster import ClusterClient
from tests.support.apache import SMALL_HEAP, ApacheBroker, ApacheNamesrv
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until_in_thread

# A broker needs time to start on a busy machine.
_SEND_TIMEOUT_SECONDS = 30.0
_NO_SECURITY = ClientSettings()
# Apache's broker dispatches messages to their queues after acknowledging them (ReputMessageService).
_DISPATCH_TIMEOUT_SECONDS = 60.0


class ApacheCluster(ClusterClient):
    """`with ApacheCluster(program) as cluster`: a broker `broker-a`; `settings` go into its broker.conf.

    `jvm_options` apply to both servers, `client` to the clients of this class.
    """

    def __init__(
        self,
        program: JavaProgram,
        settings: Mapping[str, str] | None = None,
        *,
        jvm_options: Sequence[str] = SMALL_HEAP,
        client: ClientSettings = _NO_SECURITY,
    ) -> None:
        self.namesrv = ApacheNamesrv(program, jvm_options=jvm_options)
        self.broker = ApacheBroker(program, self.namesrv.address, settings=settings, jvm_options=jvm_options)
        self._client = client
        self._stack = ExitStack()

    @property
    def address(self) -> str:
        return self.namesrv.address

    def __enter__(self) -> Self:
        with self._stack:
            for server in (self.namesrv, self.broker):
                self._stack.callback(server.close)
                asyncio.run(_started(server))
            self.admin = self._stack.enter_context(Admin(self.address, settings=self._client))
            self.producer = self._stack.enter_context(
                Producer(
                    self.address,
                    group="spark-tests",
                    timeout_seconds=_SEND_TIMEOUT_SECONDS,
                    settings=self._client,
                )
            )
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def send_messages(
        self, messages: list[Message], queue_id: int = 0, broker_name: str = "broker-a"
    ) -> None:
        queue = MessageQueue(messages[0].topic, broker_name, queue_id)
        end = self.admin.max_offset(queue) + len(messages)
        super().send_messages(messages, queue_id, broker_name)
        until_in_thread(lambda: self.admin.max_offset(queue) >= end, _DISPATCH_TIMEOUT_SECONDS)

    def until_stored(self, topic: str, count: int) -> None:
        """Wait until a topic has `count` readable messages."""

        def stored() -> int:
            return sum(reach.max_offset for reach in self.admin.topic_stats(topic).values())

        until_in_thread(lambda: stored() >= count, _DISPATCH_TIMEOUT_SECONDS)


async def _started(server: ApacheNamesrv | ApacheBroker) -> None:
    await server.start()

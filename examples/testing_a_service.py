"""Test a service with a broker of its own: a failure to order, a retry without waiting, a dead letter.

python examples/testing_a_service.py
"""

from __future__ import annotations

import asyncio

from rmq_client import MessageExt, PushConsumer
from rmq_testing import BrokerForTests

GROUP = "example-tested"
TOPIC = "orders"
FIRST_RETRY_SECONDS = 10
SECOND_RETRY_SECONDS = 30


class Till:
    """The service: notes paid orders, and cannot read orders without a number."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def consumer(self, namesrv: str) -> PushConsumer:
        return PushConsumer(
            namesrv,
            group=GROUP,
            topics=TOPIC,
            listener=self.pay,
            consume_from="first",
            max_reconsume_times=2,
        )

    async def pay(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self.paid.append(int(message.body))


async def main() -> None:
    till = Till()
    async with BrokerForTests(topics=[TOPIC]) as broker:
        refused = broker.faults.busy("pull", topic=TOPIC)  # the consumer pulls again
        async with till.consumer(broker.namesrv_address):
            await broker.publish(TOPIC, "4711")
            await broker.consumed(GROUP)
            print(f"paid {till.paid}, although {refused.met} pull was refused")

            await broker.publish(TOPIC, "no number")
            for seconds in (FIRST_RETRY_SECONDS, SECOND_RETRY_SECONDS):
                await broker.expect_redelivery(GROUP)
                await broker.advance(seconds)
            (dead,) = await broker.expect_dead_letters(GROUP)
            print(f"dead letter {dead.body.decode()!r} after {dead.reconsume_times} deliveries")


if __name__ == "__main__":
    asyncio.run(main())

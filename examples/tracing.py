"""Record who sent and who consumed a message, in the trace format of RocketMQ's tools.

python examples/tracing.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Message, MessageExt, Producer, PullConsumer, PushConsumer, Tracing

TRACES = "RMQ_SYS_TRACE_TOPIC"


async def main(namesrv: str, topic: str) -> None:
    consumed = asyncio.Event()

    async def listener(_: list[MessageExt]) -> None:
        consumed.set()

    async with Producer(namesrv, group="example-shop", trace=Tracing()) as producer:
        sent = await producer.send(Message(topic, b"order 4711", keys=["4711"]))
    async with PushConsumer(
        namesrv,
        group="example-traced",
        topics=[topic],
        listener=listener,
        consume_from="first",
        trace=Tracing(),
    ):
        await asyncio.wait_for(consumed.wait(), timeout=30)

    # Tools search the traces by the id of the message: mqadmin queryMsgTraceById -i ID
    async with PullConsumer(namesrv, group="example-traces", consume_from="first") as consumer:
        await consumer.assign(await consumer.queues(TRACES))
        while messages := await consumer.poll(timeout_seconds=1):
            for trace in messages:
                if sent.msg_id in trace.keys:
                    kinds = [line.split("\x01")[0] for line in trace.body.decode().split("\x02") if line]
                    print(f"traces of {sent.msg_id}: {', '.join(kinds)}")
            await consumer.commit()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-traced")))

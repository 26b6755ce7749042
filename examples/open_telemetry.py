"""Record OpenTelemetry spans of a message: its send, its reception, its processing, its acknowledgement.

Needs opentelemetry-sdk. python examples/open_telemetry.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rmq_client import Message, Producer, SimpleConsumer
from rmq_client.open_telemetry import OpenTelemetry


async def main(namesrv: str, topic: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = OpenTelemetry(tracer_provider=provider)

    async with telemetry.instrument(Producer(namesrv, group="example-shop")) as producer:
        await producer.send(Message(topic, b"order 4711"))
    consumer = SimpleConsumer(namesrv, group="example-spanned", topics=[topic], consume_from="first")
    async with telemetry.instrument(consumer):
        for message in await consumer.receive(max_messages=1, timeout_seconds=10):
            with telemetry.process(consumer, message):
                await consumer.ack(message)

    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans}
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        parent = names[span.parent.span_id] if span.parent else "none"
        links = ", ".join(names[link.context.span_id] for link in span.links) or "none"
        print(f"{span.name}: parent {parent}, links {links}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-open-telemetry")))

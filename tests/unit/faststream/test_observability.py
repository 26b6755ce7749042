"""Middlewares for Prometheus and OpenTelemetry."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from rmq_faststream import RocketBroker, TestRocketBroker
from rmq_faststream.opentelemetry import RocketTelemetryMiddleware
from rmq_faststream.prometheus import RocketPrometheusMiddleware


async def test_prometheus_counts_messages_of_handlers_and_publishers() -> None:
    registry = CollectorRegistry()
    broker = RocketBroker(
        "127.0.0.1:1",
        logger=None,
        middlewares=[RocketPrometheusMiddleware(registry=registry, app_name="shop")],
    )

    @broker.subscriber("orders", group="till")
    async def on_order(body: str) -> None:
        if body == "wrong":
            raise ValueError(body)

    @broker.subscriber("lines", group="lines", batch=True)
    async def on_lines(lines: list[str]) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("right", "orders")
        with pytest.raises(ValueError, match="wrong"):
            await broker.publish("wrong", "orders")
        await broker.publish_batch("a", "bc", topic="lines")

    labels = {"app_name": "shop", "broker": "rocketmq"}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"faststream_{name}", {**labels, **more})

    assert value("received_messages_total", handler="orders") == 2
    assert value("received_messages_total", handler="lines") == 2
    assert value("received_messages_size_bytes_sum", handler="lines") == 3
    assert value("received_processed_messages_total", handler="orders", status="error") == 1
    assert value("published_messages_total", destination="orders", status="success") == 1


async def test_spans_of_handler_and_publisher_are_one_trace() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    broker = RocketBroker(
        "127.0.0.1:1", logger=None, middlewares=[RocketTelemetryMiddleware(tracer_provider=provider)]
    )

    @broker.subscriber("orders", group="till")
    @broker.publisher("lines", batch=True)
    async def on_order(body: str) -> list[str]:
        return body.split()

    @broker.subscriber("lines", group="lines", batch=True)
    async def on_lines(lines: list[str]) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("a bc", "orders", tag="paid", keys=["k"])
    spans = exporter.get_finished_spans()
    assert {span.name for span in spans} >= {"orders create", "orders publish", "orders process"}
    assert len({span.context.trace_id for span in spans if span.name.startswith("orders")}) == 1

    def attributes(name: str) -> dict[str, object]:
        found: list[ReadableSpan] = [span for span in spans if span.name == name]
        return dict(found[0].attributes or {})

    published, processed = attributes("orders publish"), attributes("orders process")
    assert published["messaging.rocketmq.message.keys"] == ("k",)
    assert published["messaging.destination.name"] == "orders"
    assert processed["messaging.rocketmq.message.tag"] == "paid"
    assert processed["messaging.system"] == "rocketmq"
    assert processed["messaging.message.payload_size_bytes"] == 4
    assert attributes("lines process")["messaging.batch.message_count"] == 2

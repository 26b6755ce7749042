"""Messages cross: sent by gRPC and read by Spark, written by Spark and received by gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.small_cluster import SmallCluster
from tests.support.grpc_client import grpc_client, message
from tests.support.own_servers import OwnProxy

_BODIES = [f"body {number}" for number in range(20)]


@pytest.fixture
def proxy(cluster: SmallCluster) -> Iterator[OwnProxy]:
    """A proxy in front of the shared cluster."""
    running = OwnProxy(cluster.address)
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())
    running.close()


def test_spark_reads_what_a_grpc_client_sent(
    spark: SparkSession, cluster: SmallCluster, proxy: OwnProxy, topic: str
) -> None:
    cluster.create_topic(topic)

    async def send() -> None:
        async with grpc_client(proxy.address) as client:
            for number, body in enumerate(_BODIES):
                one = message(
                    topic, body.encode(), message_id=f"{number:04}", tag="odd" if number % 2 else "even"
                )
                await client.send(one)

    asyncio.run(send())
    rows = (
        spark.read.format("rocketmq")
        .option("rocketmq.namesrv.addr", cluster.address)
        .option("subscribe", topic)
        .load()
        .selectExpr("CAST(body AS STRING)", "tags")
        .collect()
    )
    assert sorted(tuple(row) for row in rows) == sorted(
        (body, "odd" if number % 2 else "even") for number, body in enumerate(_BODIES)
    )


def test_a_grpc_client_receives_what_spark_wrote(
    spark: SparkSession, cluster: SmallCluster, proxy: OwnProxy, topic: str
) -> None:
    cluster.create_topic(topic)

    async def receive() -> list[str]:
        async with grpc_client(proxy.address) as client:
            await client.consume(topic, topic)
            await client.receive(topic, topic)
            write()
            return sorted(one.body.decode() for one in await client.receive_all(topic, topic, len(_BODIES)))

    def write() -> None:
        rows = spark.createDataFrame([(body, "from-spark") for body in _BODIES], "body string, tags string")
        writer = rows.write.format("rocketmq").option("rocketmq.namesrv.addr", cluster.address)
        writer.option("topic", topic).mode("append").save()

    assert asyncio.run(receive()) == sorted(_BODIES)

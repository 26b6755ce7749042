"""A streaming table that two topics feed, a view of it, and a sink for large orders."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

NAMESRV = os.environ.get("EXAMPLE_NAMESRV", "127.0.0.1:9876")
ORDER = "shop string, id long, amount long"

dp.create_streaming_table("orders", comment="orders of both shops", schema=ORDER)
sink = {"rocketmq.namesrv.addr": NAMESRV, "topic": "example-large-orders"}
dp.create_sink("large_orders", "rocketmq", sink)


def orders_of(shop: str) -> DataFrame:
    """Return the stream of one topic."""
    spark = SparkSession.active()
    messages = (
        spark.readStream.format("rocketmq")
        .schema("body binary")
        .option("rocketmq.namesrv.addr", NAMESRV)
        .option("subscribe", f"example-orders-{shop}")
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = messages.selectExpr("from_json(CAST(body AS STRING), 'id long, amount long') AS o")
    return parsed.selectExpr(f"'{shop}' AS shop", "o.id", "o.amount")


# Each flow has a checkpoint of its own below `storage`.
@dp.append_flow(target="orders")
def orders_of_berlin() -> DataFrame:
    return orders_of("berlin")


@dp.append_flow(target="orders")
def orders_of_paris() -> DataFrame:
    return orders_of("paris")


@dp.materialized_view
def turnover() -> DataFrame:
    # `sum("amount")` of the groups would ask for the schema, which a pipeline's function must not.
    return SparkSession.active().table("orders").groupBy("shop").agg(functions.sum("amount"))


@dp.append_flow(target="large_orders")
def large_orders() -> DataFrame:
    large = SparkSession.active().readStream.table("orders").where("amount >= 1000")
    return large.selectExpr("to_json(struct(*)) AS body", "shop AS tags")

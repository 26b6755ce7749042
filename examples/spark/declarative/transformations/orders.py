"""A streaming table that two topics feed, a view of it, and a sink for large orders."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

NAMESRV = os.environ.get("EXAMPLE_NAMESRV", "127.0.0.1:9876")
TOPICS = "example-orders-berlin,example-orders-paris"

sink = {"rocketmq.namesrv.addr": NAMESRV, "topic": "example-large-orders"}
dp.create_sink("large_orders", "rocketmq", sink)


# One flow reads both topics: a table of files takes one flow.
@dp.table(comment="orders of both shops")
def orders() -> DataFrame:
    messages = (
        SparkSession.active()
        .readStream.format("rocketmq")
        .schema("topic string, body binary")
        .option("rocketmq.namesrv.addr", NAMESRV)
        .option("subscribe", TOPICS)
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = messages.selectExpr("topic", "from_json(CAST(body AS STRING), 'id long, amount long') AS o")
    return parsed.selectExpr("substring_index(topic, '-', -1) AS shop", "o.id", "o.amount")


@dp.materialized_view
def turnover() -> DataFrame:
    # `sum("amount")` of the groups would ask for the schema, which a pipeline's function must not.
    return SparkSession.active().table("orders").groupBy("shop").agg(functions.sum("amount"))


# Each flow has a checkpoint of its own below `storage`.
@dp.append_flow(target="large_orders")
def large_orders() -> DataFrame:
    large = SparkSession.active().readStream.table("orders").where("amount >= 1000")
    return large.selectExpr("to_json(struct(*)) AS body", "shop AS tags")

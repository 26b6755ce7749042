"""Join orders with their payments, and find orders that were not paid within an hour.

Shows a join of two streams, in which watermarks determine how long to wait. Run it beside `make run`:

    .venv/bin/python examples/spark/join_topics.py [NAMESRV]

It prints when orders a, c and d were paid, and that b was not: the messages of 13:00 move the watermark past
the hour that b had. A second run has orders of its own, and also prints those of the first run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

ORDERS, PAYMENTS = "example-join-orders", "example-join-payments"
PLACED = {"a": "10:00", "b": "10:05", "c": "10:10", "d": "13:00"}
PAID = {"c": "10:15", "a": "10:20", "d": "13:05"}


def send(namesrv: str) -> None:
    run = uuid.uuid4().hex[:6]
    with Admin(namesrv) as admin, Producer(namesrv, group="example-shop") as producer:
        for topic, times in ((ORDERS, PLACED), (PAYMENTS, PAID)):
            admin.create_topic(topic, queues=2, exists_ok=True)
            for order, time in times.items():
                body = {"id": f"{order}-{run}", "at": f"2026-01-31T{time}:00Z"}
                producer.send(Message(topic, json.dumps(body).encode()))


def stream(spark: SparkSession, namesrv: str, topic: str) -> DataFrame:
    source = spark.readStream.format("rocketmq").schema("body binary").option("subscribe", topic)
    source = source.option("rocketmq.namesrv.addr", namesrv).option("startingOffsets", "earliest")
    parsed = "from_json(CAST(body AS STRING), 'id string, at timestamp') AS parsed"
    return source.load().selectExpr(parsed).select("parsed.*").withWatermark("at", "10 minutes")


def show(orders: DataFrame, batch: int) -> None:
    for row in orders.selectExpr("id", "date_format(paid_at, 'HH:mm') AS time").orderBy("id").collect():
        print(f"order {row.id}: " + (f"paid at {row.time}" if row.time else "not paid within an hour"))


def main(namesrv: str, checkpoint: str) -> None:
    send(namesrv)
    # By default, Spark starts its workers with the python3 of the PATH, which may lack the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("join").master("local[2]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC")
    with session.config("spark.ui.showConsoleProgress", "false").getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        orders = stream(spark, namesrv, ORDERS).withColumnRenamed("at", "placed_at")
        payments = stream(spark, namesrv, PAYMENTS).withColumnsRenamed({"id": "order", "at": "paid_at"})
        in_time = expr("id = order AND paid_at BETWEEN placed_at AND placed_at + INTERVAL 1 HOUR")
        joined = orders.join(payments, in_time, "leftOuter")
        query = joined.writeStream.foreachBatch(show).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876", folder)

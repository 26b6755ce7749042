"""Process the messages since a point in time again, because the job had a bug.

Shows a stream that starts at a time, and that this needs a new checkpoint. Run it beside `make run`:

    .venv/bin/python examples/spark/reprocess_from_timestamp.py [NAMESRV]

Version 1 of the job prints six orders, the last three with 0 EUR, because it takes their euros for cents.
Version 2 prints those three again, with 4, 5 and 6 EUR. In a second run, version 1 also reads the orders of
the first run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

TOPIC = "example-amounts"


def send_amounts(namesrv: str, unit: str, amounts: list[int]) -> None:
    with Admin(namesrv) as admin, Producer(namesrv, group="example-shop") as producer:
        admin.create_topic(TOPIC, queues=1, exists_ok=True)
        for amount in amounts:
            producer.send(Message(TOPIC, b"%d" % amount, tags=unit))


def run_job(spark: SparkSession, version: int, euros: str, options: dict[str, str], checkpoint: str) -> None:
    def show(orders: DataFrame, batch: int) -> None:
        for row in orders.orderBy("queueOffset").collect():
            print(f"version {version}: offset {row.queueOffset}, {row.euros} EUR")

    source = spark.readStream.format("rocketmq").schema("queueOffset long, tags string, body binary")
    orders = source.option("subscribe", TOPIC).options(**options).load()
    amounts = orders.selectExpr("queueOffset", "tags", "CAST(CAST(body AS STRING) AS INT) AS amount")
    writer = amounts.selectExpr("queueOffset", f"{euros} AS euros").writeStream.foreachBatch(show)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def main(namesrv: str, folder: str) -> None:
    send_amounts(namesrv, "cents", [100, 200, 300])
    # By default, Spark starts its workers with the python3 of the PATH, which may lack the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("reprocess").master("local[2]").config("spark.ui.enabled", "false")
    with session.config("spark.ui.showConsoleProgress", "false").getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        send_amounts(namesrv, "euros", [4, 5, 6])
        where = {"rocketmq.namesrv.addr": namesrv}

        everything = where | {"startingOffsets": "earliest"}
        run_job(spark, 1, "amount DIV 100", everything, f"{folder}/version-1")
        print(f"The shop sends euros since {moment}: again from there on.")
        # With the checkpoint of version 1, the query would resume where that one ended, whatever the options
        # say.
        again = where | {"startingTimestamp": moment}
        run_job(spark, 2, "IF(tags = 'cents', amount DIV 100, amount)", again, f"{folder}/version-2")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as checkpoints:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876", checkpoints)

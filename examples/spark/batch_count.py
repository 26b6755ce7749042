"""Count the messages of a topic, by tag and by queue.

Shows a batch read of the current content of a topic as a DataFrame. Run it beside `make run`:

    .venv/bin/python examples/spark/batch_count.py [NAMESRV]

It sends 1,000 orders and prints two tables: 500 are `paid`, 300 `sent` and 200 `cancelled`, and each of the
four queues has 250. A second run also counts the orders of the first one.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

TOPIC = "example-orders"
TAGS = ["paid"] * 5 + ["sent"] * 3 + ["cancelled"] * 2


def send_orders(namesrv: str) -> None:
    with Admin(namesrv) as admin, Producer(namesrv, group="example-shop") as producer:
        admin.create_topic(TOPIC, queues=4, exists_ok=True)
        for first in range(0, 1000, 50):
            orders = range(first, first + 50)
            producer.send_batch(
                Message(TOPIC, b"order %d" % order, tags=TAGS[order % 10]) for order in orders
            )


def main(namesrv: str) -> None:
    send_orders(namesrv)
    # By default, Spark starts its workers with the python3 of the PATH, which may lack the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("batch count").master("local[2]")
    session = session.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    with session.config("spark.ui.showConsoleProgress", "false").getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        orders = (
            spark.read.format("rocketmq")
            .schema("tags string, queueId int")  # other columns are not decoded
            .option("rocketmq.namesrv.addr", namesrv)
            .option("subscribe", TOPIC)
            .load()
        )
        orders.groupBy("tags").count().orderBy("tags").show()
        orders.groupBy("queueId").count().orderBy("queueId").show()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")

"""Parse JSON bodies by a schema, and keep the bodies that do not match it.

Shows `from_json` with a column for bodies that cannot be parsed, nested fields, and `to_json` for writing.
Run it beside `make run`:

    .venv/bin/python examples/spark/json_bodies.py [NAMESRV]

Three of four orders have the expected form. Their lines are printed one by one. The body of the fourth is
printed as it is. A second run reads the orders of both runs.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

TOPIC = "example-json-orders"
ORDER = "id long, customer struct<name: string>, lines array<struct<item: string, count: int>>, broken string"
BODIES = (
    '{"id": 1, "customer": {"name": "anna"}, "lines": [{"item": "tea", "count": 2}, {"item": "cup"}]}',
    '{"id": 2, "customer": {"name": "bert"}, "lines": [{"item": "tea", "count": 1}], "coupon": "unknown"}',
    '{"id": 3, "lines": []}',
    '{"id": "four", "lines": 4}',
)


def main(namesrv: str) -> None:
    with Admin(namesrv) as admin:
        admin.create_topic(TOPIC, queues=4, exists_ok=True)
    with Producer(namesrv, group="example-shop") as producer:
        for body in BODIES:
            producer.send(Message(TOPIC, body.encode()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("json").master("local[2]").config("spark.ui.enabled", "false")
    with session.config("spark.ui.showConsoleProgress", "false").getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        source = spark.read.format("rocketmq").schema("body binary")
        messages = source.option("rocketmq.namesrv.addr", namesrv).option("subscribe", TOPIC).load()
        # Without the column for broken bodies, fields that cannot be parsed are null, and nobody notices.
        options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', 'broken')"
        order = f"from_json(CAST(body AS STRING), '{ORDER}', {options}) AS o"
        parsed = messages.selectExpr(order).select("o.*")

        lines = parsed.where("broken IS NULL").selectExpr("id", "customer.name AS name", "inline(lines)")
        for row in lines.orderBy("id", "item").collect():
            print(f"order {row.id} of {row.name}: {row['count']} x {row.item}")
        for row in parsed.where("broken IS NOT NULL").collect():
            print(f"not parsed: {row.broken}")
        # The other way: a column of JSON is what the sink takes as a body.
        print(lines.selectExpr("to_json(struct(id, item)) AS body").orderBy("body").first())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")

"""Write a DataFrame to a topic, and let a stream write alerts from there to another topic.

Shows the sink in a batch and in a stream, and what other clients receive. Run it beside `make run`:

    .venv/bin/python examples/spark/sink.py [NAMESRV]

Of 100 readings of four sensors, five are 110 degrees or more. The SDK reads five alerts from the second topic
and prints them with their row ids. In a second run, the stream also reads the readings of the first run.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.sql import SparkSession

from rmq_client.blocking import Admin, PullConsumer

READINGS, ALERTS = "example-readings", "example-alerts"


def print_new(namesrv: str, topic: str) -> None:
    with PullConsumer(namesrv, group="example-fire-brigade", consume_from="first") as consumer:
        consumer.assign(consumer.queues(topic))
        while messages := consumer.poll(max_messages=100, timeout_seconds=2):
            for message in messages:
                print(message.tags, message.keys, message.body.decode(), message.properties["SPARK_ROW_ID"])
            consumer.commit()


def main(namesrv: str, checkpoint: str) -> None:
    with Admin(namesrv) as admin:
        for topic in (READINGS, ALERTS):
            admin.create_topic(topic, queues=4, exists_ok=True)
    # By default, Spark starts its workers with the python3 of the PATH, which may lack the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("sink").master("local[2]").config("spark.ui.enabled", "false")
    with session.config("spark.ui.showConsoleProgress", "false").getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        sensors = spark.range(100).selectExpr("concat('s', id % 4) AS sensor", "15 + id AS celsius")
        # Rows with the same sharding key go to the same queue.
        rows = sensors.selectExpr("to_json(struct(*)) AS body", "sensor AS shardingKey")
        sink = rows.write.format("rocketmq").option("rocketmq.namesrv.addr", namesrv)
        sink.option("topic", READINGS).mode("append").save()

        source = spark.readStream.format("rocketmq").schema("body binary")
        source = source.option("rocketmq.namesrv.addr", namesrv).option("startingOffsets", "earliest")
        parsed = "from_json(CAST(body AS STRING), 'sensor string, celsius int') AS reading"
        readings = source.option("subscribe", READINGS).load().selectExpr(parsed).select("reading.*")
        hot = readings.where("celsius >= 110")
        alerts = hot.selectExpr("to_json(struct(*)) AS body", "'hot' AS tags", "array(sensor) AS keys")
        stream = alerts.writeStream.format("rocketmq").option("rocketmq.namesrv.addr", namesrv)
        stream = stream.option("topic", ALERTS).option("checkpointLocation", checkpoint)
        stream.trigger(availableNow=True).start().awaitTermination()
    print_new(namesrv, ALERTS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876", folder)

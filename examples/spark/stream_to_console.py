"""Print the messages of a topic as they arrive, until Ctrl-C.

Shows a stream with a micro-batch every two seconds, if there are new messages. Run it beside `make run`:

    .venv/bin/python examples/spark/stream_to_console.py [NAMESRV]

It sends three messages and prints them as a table. In another terminal, send ten more, and watch them arrive:

    .venv/bin/python examples/quickstart_send.py [NAMESRV] quickstart
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading

from pyspark.sql import SparkSession

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

TOPIC = "quickstart"


def send_three(namesrv: str) -> None:
    with Admin(namesrv) as admin, Producer(namesrv, group="example-stream") as producer:
        admin.create_topic(TOPIC, queues=4, exists_ok=True)
        for number in range(3):
            producer.send(Message(TOPIC, b"hello Spark %d" % number, tags="greeting"))


def main(namesrv: str, checkpoint: str) -> None:
    send_three(namesrv)
    # By default, Spark starts its workers with the python3 of the PATH, which may lack the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("stream to console").master("local[2]")
    session = session.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    with session.getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        messages = (
            spark.readStream.format("rocketmq")
            .option("rocketmq.namesrv.addr", namesrv)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .load()
        )
        rows = messages.selectExpr("queueId", "queueOffset", "tags", "CAST(body AS STRING) AS body")
        writer = rows.writeStream.format("console").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="2 seconds").start()
        stop = threading.Event()
        # PySpark's own handler of Ctrl-C calls the JVM during another call, which causes tracebacks.
        signal.signal(signal.SIGINT, lambda *_: stop.set())
        while not stop.is_set() and not query.awaitTermination(1):
            pass
        query.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876", folder)

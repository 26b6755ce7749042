"""Find users whose log-in failed three times in a row.

Shows state per key that is kept between micro-batches (`transformWithState`), and how the messages of a key
are processed in the order in which they were sent. Run it beside `make run`:

    .venv/bin/python examples/spark/stateful_per_key.py [NAMESRV]

It prints `anna: 3 failures in a row` and the same for carl. Bert also failed three times, but not in a row. A
second run also prints those of the first run. Needs PySpark 4.1 or later, with pandas and protobuf.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

TOPIC = "example-log-ins"
LOG_INS = (
    "anna-no bert-no carl-no anna-no bert-no bert-ok carl-no anna-no carl-no anna-ok bert-no carl-ok bert-ok"
)
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class FailuresInARow(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._failures = handle.getValueState("failures", "count int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        state = self._failures.get()
        count = 0 if state is None else state[0]
        # All messages of a user are in one queue, so its offsets give their order. The shuffle may change the
        # order.
        for row in sorted(rows, key=lambda row: row.queueOffset):
            count = 0 if row.tags == "ok" else count + 1
            if count == 3:
                yield Row(user=key[0], failures=count)
        self._failures.update((count,))

    def close(self) -> None:
        pass


def send_log_ins(namesrv: str) -> None:
    with Admin(namesrv) as admin, Producer(namesrv, group="example-door") as producer:
        admin.create_topic(TOPIC, queues=4, exists_ok=True)
        for user, result in (log_in.split("-") for log_in in LOG_INS.split()):
            producer.send(
                Message(TOPIC, user.encode(), tags=result), key=user
            )  # the same user always has the same queue


def show(alerts: DataFrame, batch: int) -> None:
    for row in alerts.collect():
        print(f"{row.user}: {row.failures} failures in a row")


def main(namesrv: str, checkpoint: str) -> None:
    send_log_ins(namesrv)
    # By default, Spark starts its workers with the python3 of the PATH, which may lack the connector.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("state for each key").master("local[2]")
    session = session.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    session = session.config("spark.sql.shuffle.partitions", "2")
    with session.config("spark.sql.streaming.stateStore.providerClass", STATE_STORE).getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        log_ins = (
            spark.readStream.format("rocketmq")
            .schema("queueOffset long, tags string, body binary")
            .option("rocketmq.namesrv.addr", namesrv)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 8)  # several micro-batches, to show that state is kept
            .load()
        )
        users = log_ins.selectExpr("CAST(body AS STRING) AS user", "tags", "queueOffset").groupBy("user")
        alerts = users.transformWithState(FailuresInARow(), "user string, failures int", "append", "none")
        writer = alerts.writeStream.foreachBatch(show).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876", folder)

"""Read Avro bodies whose schemas are in a registry.

Shows `mapInArrow` with fastavro, two versions of a schema in one topic, and bodies that are not Avro. It
needs `pip install fastavro`. Run it beside `make run`:

    .venv/bin/python examples/spark/avro_registry.py [NAMESRV [REGISTRY]]

REGISTRY is the URL of a registry with the requests of Confluent's; without it, the script starts a small one.
Of five messages two have the first version of the schema, two the second one, and one is no Avro. The script
deletes its topic at the end.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import fastavro
import pyarrow as pa
from pyspark.sql import SparkSession
from small_registry import SmallRegistry, register

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

TOPIC = "example-avro-readings"
SENSOR, CELSIUS = {"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}
HUMIDITY = {"name": "humidity", "type": ["null", "double"], "default": None}
FIRST = {"type": "record", "name": "Reading", "fields": [SENSOR, CELSIUS]}
SECOND = {"type": "record", "name": "Reading", "fields": [CELSIUS, HUMIDITY, SENSOR]}
# Every row comes in this form, whatever the version of its message.
COLUMNS = "sensor string, celsius double, humidity double, problem string"


def readings(registry: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that decodes batches of bodies on the executors."""
    fields = [("sensor", pa.string()), ("celsius", pa.float64())]
    columns = pa.schema([*fields, ("humidity", pa.float64()), ("problem", pa.string())])

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = fastavro.parse_schema(SECOND)
        # A schema never changes under its id: one request for each id and task.
        writers: dict[int, Any] = {}

        def row(body: bytes) -> dict[str, Any]:
            if len(body) < 5 or body[0] != 0:
                return {"problem": f"no id of a schema: {body[:20]!r}"}
            (number,) = struct.unpack(">I", body[1:5])
            if number not in writers:
                with urlopen(f"{registry}/schemas/ids/{number}") as answer:
                    writers[number] = fastavro.parse_schema(json.loads(json.load(answer)["schema"]))
            try:
                reading: Any = fastavro.schemaless_reader(io.BytesIO(body[5:]), writers[number], wanted)
            except (EOFError, ValueError) as error:
                return {"problem": f"not decoded by schema {number}: {error}"}
            return dict(reading)

        for batch in batches:
            yield pa.RecordBatch.from_pylist(
                [row(body) for body in batch["body"].to_pylist()], schema=columns
            )

    return decode


def encoded(number: int, schema: dict[str, Any], reading: dict[str, Any]) -> bytes:
    """Return a body: a zero, the id of the schema in four bytes, and the record."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), reading)
    return b"\0" + struct.pack(">I", number) + body.getvalue()


def send(namesrv: str, registry: str) -> None:
    first, second = (
        register(registry, f"{TOPIC}-value", json.dumps(schema), "AVRO") for schema in (FIRST, SECOND)
    )
    bodies = [encoded(first, FIRST, {"sensor": f"s{n}", "celsius": 20.0 + n}) for n in range(2)]
    for n in range(2, 4):
        reading = {"sensor": f"s{n}", "celsius": 20.0 + n, "humidity": 0.5}
        bodies.append(encoded(second, SECOND, reading))
    with Producer(namesrv, group="example-sensors") as producer:
        for body in [*bodies, b"a text"]:
            producer.send(Message(TOPIC, body))


def main(namesrv: str, registry: str) -> None:
    with Admin(namesrv) as admin:
        admin.create_topic(TOPIC, queues=4, exists_ok=True)
        try:
            send(namesrv, registry)
            show(namesrv, registry)
        finally:
            admin.delete_topic(TOPIC)


def show(namesrv: str, registry: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName("avro").master("local[2]").config("spark.ui.enabled", "false")
    with session.config("spark.ui.showConsoleProgress", "false").getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        source = spark.read.format("rocketmq").schema("body binary")
        messages = source.option("rocketmq.namesrv.addr", namesrv).option("subscribe", TOPIC).load()
        # The same works with readStream.
        rows = messages.mapInArrow(readings(registry), COLUMNS)
        for row in rows.orderBy("sensor").collect():
            print(row.problem or f"{row.sensor}: {row.celsius} degrees, humidity {row.humidity}")


if __name__ == "__main__":
    at = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    if len(sys.argv) > 2:
        main(at, sys.argv[2])
    else:
        with SmallRegistry() as small:
            main(at, small.url)

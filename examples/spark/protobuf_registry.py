"""Read Protobuf bodies whose schemas are in a registry.

Shows `mapInArrow` with message classes that are built from the registry, so that executors need no generated
code. It needs `pip install protobuf`. Run it beside `make run`:

    .venv/bin/python examples/spark/protobuf_registry.py [NAMESRV [REGISTRY]]

REGISTRY is the URL of a registry with the requests of Confluent's; without it, the script starts a small one.
Of three messages two are readings, and one is no Protobuf. The script deletes its topic at the end.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from pyspark.sql import SparkSession
from small_registry import SmallRegistry, register

from rmq_client import Message
from rmq_client.blocking import Admin, Producer

TOPIC = "example-protobuf-readings"
COLUMNS = "sensor string, celsius double, problem string"


def readings(registry: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that decodes batches of bodies on the executors."""
    columns = pa.schema([("sensor", pa.string()), ("celsius", pa.float64()), ("problem", pa.string())])

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A schema never changes under its id: one request for each id and task.
        kinds: dict[int, Any] = {}

        def row(body: bytes) -> dict[str, Any]:
            # A zero, the id of the schema, and which message of its file: 0 is the first one.
            if len(body) < 6 or body[0] != 0 or body[5] != 0:
                return {"problem": f"no id of a schema: {body[:20]!r}"}
            (number,) = struct.unpack(">I", body[1:5])
            if number not in kinds:
                # Confluent's registry returns the text of a .proto file unless it is asked for this form.
                with urlopen(f"{registry}/schemas/ids/{number}?format=serialized") as answer:
                    kinds[number] = first_message(base64.b64decode(json.load(answer)["schema"]))
            try:
                reading = kinds[number].FromString(body[6:])
            except DecodeError as error:
                return {"problem": f"not decoded by schema {number}: {error}"}
            return {"sensor": reading.sensor, "celsius": reading.celsius}

        for batch in batches:
            yield pa.RecordBatch.from_pylist(
                [row(body) for body in batch["body"].to_pylist()], schema=columns
            )

    return decode


def first_message(serialized: bytes) -> Any:
    """Return the class of the first message of a file: this is what generated code does as well."""
    file = FileDescriptorProto.FromString(serialized)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = [part for part in (file.package, file.message_type[0].name) if part]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))


def reading_file() -> bytes:
    """Return what `protoc --descriptor_set_out` makes of a .proto file with this message:

    message Reading { string sensor = 1; double celsius = 2; }
    """
    file = FileDescriptorProto(name="reading.proto", package="example", syntax="proto3")
    message = file.message_type.add(name="Reading")
    one = FieldDescriptorProto.LABEL_OPTIONAL
    message.field.add(name="sensor", number=1, type=FieldDescriptorProto.TYPE_STRING, label=one)
    message.field.add(name="celsius", number=2, type=FieldDescriptorProto.TYPE_DOUBLE, label=one)
    serialized: bytes = file.SerializeToString()
    return serialized


def send(namesrv: str, registry: str) -> None:
    number = register(registry, f"{TOPIC}-value", base64.b64encode(reading_file()).decode(), "PROTOBUF")
    kind = first_message(reading_file())
    head = b"\0" + struct.pack(">I", number) + b"\0"
    bodies = [head + kind(sensor=f"s{n}", celsius=20.0 + n).SerializeToString() for n in range(2)]
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
    session = SparkSession.builder.appName("protobuf").master("local[2]").config("spark.ui.enabled", "false")
    with session.config("spark.ui.showConsoleProgress", "false").getOrCreate() as spark:
        spark.sparkContext.setLogLevel("ERROR")
        source = spark.read.format("rocketmq").schema("body binary")
        messages = source.option("rocketmq.namesrv.addr", namesrv).option("subscribe", TOPIC).load()
        # The same works with readStream.
        rows = messages.mapInArrow(readings(registry), COLUMNS)
        for row in rows.orderBy("sensor").collect():
            print(row.problem or f"{row.sensor}: {row.celsius} degrees")


if __name__ == "__main__":
    at = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    if len(sys.argv) > 2:
        main(at, sys.argv[2])
    else:
        with SmallRegistry() as small:
            main(at, small.url)

"""Run a Declarative Pipeline: two topics feed a table, and large orders go to a third topic.

Shows `create_streaming_table`, `append_flow`, `create_sink` and `materialized_view`, in the folder
`declarative`. It needs PySpark 4.2 or later, and `pip install 'pyspark[pipelines]'`. Run it beside
`make run`:

    .venv/bin/python examples/spark/run_pipeline.py [NAMESRV]

The pipeline runs twice, each time up to the end of the topics. The second run reads the orders that were sent
since the first one. The large orders of both runs are printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from rmq_client import Message
from rmq_client.blocking import Admin, Producer, PullConsumer

SHOPS = ("berlin", "paris")
LARGE = "example-large-orders"
PROJECT = Path(__file__).with_name("declarative")


def run_pipeline(namesrv: str, folder: Path) -> None:
    """Run the pipeline with its tables and checkpoints below a folder."""
    spec = (PROJECT / "spark-pipeline.yml").read_text()
    spec = spec.replace("file:///tmp/example-orders-storage", (folder / "storage").as_uri())
    (folder / "spark-pipeline.yml").write_text(spec)
    if not (folder / "transformations").exists():
        (folder / "transformations").symlink_to(PROJECT / "transformations")
    home = Path(pyspark.__file__).parent
    here = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "EXAMPLE_NAMESRV": namesrv}
    command: list[str | Path] = [
        home / "bin" / "spark-pipelines",
        "run",
        "--spec",
        folder / "spark-pipeline.yml",
    ]
    # A catalog on disk, for the tables to be there in the next run: by default, Spark has one in memory.
    command += ["--conf", "spark.sql.catalogImplementation=hive"]
    command += ["--conf", f"spark.sql.warehouse.dir={folder / 'warehouse'}"]
    subprocess.run(command, env={**os.environ, **here}, cwd=folder, check=True)


def print_new(namesrv: str) -> None:
    with PullConsumer(namesrv, group="example-sales", consume_from="first") as consumer:
        consumer.assign(consumer.queues(LARGE))
        while messages := consumer.poll(max_messages=100, timeout_seconds=2):
            for message in messages:
                print("large order:", message.tags, message.body.decode())
            consumer.commit()


def main(namesrv: str, folder: Path) -> None:
    with Admin(namesrv) as admin, Producer(namesrv, group="example-shops") as producer:
        for topic in (*(f"example-orders-{shop}" for shop in SHOPS), LARGE):
            admin.create_topic(topic, queues=2, exists_ok=True)
        for run in range(2):
            for shop in SHOPS:
                for number, amount in enumerate((10, 2000 + run)):
                    body = f'{{"id": {number}, "amount": {amount}}}'
                    producer.send(Message(f"example-orders-{shop}", body.encode()))
            run_pipeline(namesrv, folder)
    print_new(namesrv)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876", Path(name))

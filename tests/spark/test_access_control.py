"""Spark with Apache's servers that require access keys and TLS. Secrets appear nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rmq_client import ClientSettings, TlsSettings
from tests.spark.apache_cluster import ApacheCluster
from tests.spark.test_batch_read import positions, read
from tests.spark.test_stream_read import Pipe, numbered, offsets
from tests.support import toolchain
from tests.support.apache_security import ACCESS_CONTROL, SUPER_USER, with_tls
from tests.support.certificates import Certificate, make_certificate
from tests.support.requirements import built_or_skip

pytestmark = pytest.mark.java

_KEYS = {
    "rocketmq.accessKey": SUPER_USER.access_key,
    "rocketmq.secretKey": SUPER_USER.secret_key,
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"), "servers")


@pytest.fixture(scope="module")
def secured(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    program = built_or_skip(toolchain.apache_servers)
    client = ClientSettings(credentials=SUPER_USER, tls=TlsSettings(ca_file=certificate.cert_file))
    options = with_tls(certificate, tmp_path_factory.mktemp("tls"))
    with ApacheCluster(program, ACCESS_CONTROL, jvm_options=options, client=client) as running:
        yield running


@pytest.fixture
def secure(certificate: Certificate) -> dict[str, str]:
    """Options of reading and writing."""
    return {**_KEYS, "rocketmq.tls.enable": "true", "rocketmq.tls.caFile": str(certificate.cert_file)}


def test_batch_write_and_read_with_access_keys_and_tls(
    spark: SparkSession,
    secured: ApacheCluster,
    topic: str,
    secure: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    secured.create_topic(topic, queues=2)
    rows = spark.range(0, 100, 1, 2).select(f.col("id").cast("string").alias("body"))
    writer = rows.write.format("rocketmq").option("rocketmq.namesrv.addr", secured.address)
    writer.options(topic=topic, **secure).mode("append").save()
    secured.until_stored(topic, 100)
    frame = read(spark, secured, subscribe=topic, **secure)
    found = frame.select(f.col("body").cast("string").cast("int").alias("number")).collect()
    assert sorted(row.number for row in found) == list(range(100))
    frame.explain("extended")
    assert SUPER_USER.secret_key not in capsys.readouterr().out


def test_stream_with_access_keys_and_tls(
    spark: SparkSession, secured: ApacheCluster, topic: str, secure: dict[str, str], tmp_path: Path
) -> None:
    secured.create_topic(topic, queues=1)
    secured.send(topic, 0, numbered(50))
    pipe = Pipe(spark, secured, tmp_path, subscribe=topic, startingOffsets="earliest", **secure)
    progress = pipe.drain()
    assert pipe.positions() == offsets(0, 0, 50)
    shown = [json.dumps(batch, default=str) for batch in progress]
    kept = [file.read_bytes() for file in (tmp_path / "check").rglob("*") if file.is_file()]
    assert shown
    assert kept
    assert not any(SUPER_USER.secret_key in text for text in shown)
    assert not any(SUPER_USER.secret_key.encode() in content for content in kept)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({}, "username cannot be null"),
        ({**_KEYS, "rocketmq.secretKey": "open-sesame"}, "check signature failed"),
        ({**_KEYS, "rocketmq.accessKey": "nobody"}, "User:nobody is not found"),
    ],
)
def test_wrong_access_keys_fail_at_once(
    spark: SparkSession, secured: ApacheCluster, topic: str, keys: dict[str, str], complaint: str
) -> None:
    secured.create_topic(topic, queues=1)
    secured.send(topic, 0, [b"x"])
    with pytest.raises(PySparkException, match=f"{complaint}.*check access key") as refused:
        positions(read(spark, secured, subscribe=topic, **keys))
    assert "sesame" not in str(refused.value)
    rows = spark.sql("SELECT 'x' AS body").write.format("rocketmq").mode("append")
    rows = rows.option("rocketmq.namesrv.addr", secured.address).options(topic=topic, **keys)
    with pytest.raises(PySparkException, match=f"{complaint}.*check access key") as refused:
        rows.save()
    assert "sesame" not in str(refused.value)


def test_untrusted_servers_fail_at_once(spark: SparkSession, secured: ApacheCluster, topic: str) -> None:
    trusting_nobody = {**_KEYS, "rocketmq.tls.enable": "true"}
    with pytest.raises(PySparkException, match="its certificate is not trusted: self-signed certificate"):
        read(spark, secured, subscribe=topic, **trusting_nobody).collect()

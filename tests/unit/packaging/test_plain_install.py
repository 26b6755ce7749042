"""An install without extras: what works, and the error where a package is missing."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rmq_client import BrokerError, Compression, CompressionType, MessageQueue, UsageError
from rmq_client.consumer.requests.pull_client import check_decoding
from rmq_client.response_decoding import ResponseDecoding
from rmq_remoting.compression import compress, decompress
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message
from rmq_remoting.message_errors import CompressionUnavailableError

_EXTRAS = ("cryptography", "google", "grpc", "lz4", "structlog", "uvloop", "yaml", "zstandard")
_PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
_PACKAGES = [(CompressionType.LZ4, "LZ4", "lz4"), (CompressionType.ZSTD, "Zstandard", "zstandard")]


@pytest.fixture
def plain_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import of a package of the extras raises ImportError."""
    for name in (*_EXTRAS, "lz4.frame", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)


def _cure(package: str) -> str:
    """Return what installs a package of the extra `compression` on this Python."""
    brought = map(Requirement, _PROJECT["optional-dependencies"]["compression"])
    if any(each.name == package and (each.marker is None or each.marker.evaluate()) for each in brought):
        return "pip install 'rmq[compression]'"
    return f"pip install {package}"


def _run(program: str, missing: tuple[str, ...] = _EXTRAS) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter that lacks packages."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", blocked + program], capture_output=True, text=True, timeout=60, check=False
    )


def test_sdk_and_tools_are_complete_without_extras() -> None:
    done = _run(
        "from rmq_client import *\n"
        "import rmq_client.blocking, rmq_broker.store_tool.main, rmq_remoting.daemon.health\n"
        "import rmq_broker.store_tool.dump, rmq_broker.store_tool.repair\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_daemons_name_the_missing_extra_in_one_sentence() -> None:
    done = _run(
        "import rmq_broker.main, rmq_namesrv.main\n"
        "for module in (rmq_broker.main, rmq_namesrv.main):\n"
        "    sys.argv = [module.__package__]\n"
        "    assert module.main() == 1\n"
    )
    extra = "the daemons need the extra `broker`, pip install 'rmq[broker]'"
    sentence = f"the package structlog is not installed: {extra}"
    assert (done.returncode, done.stderr) == (0, f"rmq_broker: {sentence}\nrmq_namesrv: {sentence}\n")


def test_grpc_names_its_extra(tmp_path: Path) -> None:
    done = _run(
        "import rmq_broker.main, rmq_proxy.main\n"
        "sys.argv = ['rmq-proxy', '-n', '127.0.0.1:1']\n"
        "assert rmq_proxy.main.main() == 1\n"
        f"sys.argv = ['rmq-broker', '--standalone', '--namesrv-port=0', '--store={tmp_path}']\n"
        "sys.argv += ['--set=grpcServerPort=1', '--set=listenPort=0', '--set=metricsExporterType=DISABLE']\n"
        "assert rmq_broker.main.main() == 1\n",
        ("grpc",),
    )
    assert done.returncode == 0, done.stderr
    sentence = "the package grpc is not installed: {} the extra `proxy`, pip install 'rmq[proxy]'"
    assert f"rmq-proxy: {sentence.format('gRPC needs')}" in done.stderr
    assert f"cannot start: {sentence.format('grpcServerPort needs')}" in done.stderr


@pytest.mark.parametrize(("kind", "name", "package"), _PACKAGES)
@pytest.mark.usefixtures("plain_install")
def test_compression_without_its_package_says_how_to_get_it(
    kind: CompressionType, name: str, package: str
) -> None:
    missing = f"{name} compression needs the package {package}, which is not installed: "
    sentence = re.escape(missing + _cure(package))
    for call in (compress, decompress):
        with pytest.raises(CompressionUnavailableError, match=sentence):
            call(b"body", kind)
    with pytest.raises(UsageError, match=sentence):
        Compression(type=kind)


@pytest.mark.usefixtures("plain_install")
def test_zlib_needs_no_package() -> None:
    assert decompress(compress(b"body"), Compression().type) == b"body"


def test_a_message_that_needs_a_missing_package_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    sys_flag = CompressionType.LZ4.sys_flag
    record = encode_stored_message(
        MessageExt("orders", b"an LZ4 frame", queue_id=0, sys_flag=sys_flag, queue_offset=7)
    )
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    decoding = ResponseDecoding(record, max_body_bytes=1 << 20)
    assert decoding.skipped == []
    with pytest.raises(BrokerError, match="LZ4 compression needs the package lz4, which"):
        check_decoding(decoding, MessageQueue("orders", "broker-a", 0), "127.0.0.1:10911", "pull")

"""The files with the id that the controller gave a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.controller.identity import Application, IdentityFiles
from rmq_remoting.daemon.lifecycle import StartError


def _files(folder: Path, cluster: str = "C", name: str = "broker-a") -> IdentityFiles:
    return IdentityFiles(folder / "brokerIdentity", cluster, name)


def test_an_application_is_kept_until_the_id_is_accepted(tmp_path: Path) -> None:
    files = _files(tmp_path)
    assert (files.load(), files.load_application()) == (None, None)
    files.apply(Application(3, "10.0.0.1:10911;1700000000000"))
    # As Apache's TempBrokerMetadata and BrokerMetadata write them.
    text = (tmp_path / "brokerIdentity-temp").read_text()
    assert text == "C#broker-a#3#10.0.0.1:10911;1700000000000"
    assert _files(tmp_path).load_application() == Application(3, "10.0.0.1:10911;1700000000000")
    files.accept(3)
    assert (tmp_path / "brokerIdentity").read_text() == "C#broker-a#3"
    assert not (tmp_path / "brokerIdentity-temp").exists()
    assert _files(tmp_path).load() == 3


@pytest.mark.parametrize(("cluster", "name"), [("D", "broker-a"), ("C", "broker-b")])
def test_the_file_of_another_broker_is_refused(tmp_path: Path, cluster: str, name: str) -> None:
    _files(tmp_path).accept(1)
    with pytest.raises(StartError, match=r"is of broker broker-a in cluster C.*Correct storePathRootDir"):
        _files(tmp_path, cluster, name).load()


@pytest.mark.parametrize("content", [b"C#broker-a", b"C#broker-a#one", b"\xff\xfe"])
def test_an_unreadable_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "brokerIdentity").write_bytes(content)
    with pytest.raises(StartError, match="brokerIdentity is not readable"):
        _files(tmp_path).load()

"""The command line: options, output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmq_broker.store_tool.main import main
from tests.unit.broker.store_tool.parts import StoreWriter, finished, killed, overwrite, queue_path

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(20)
    return finished(writer)


def test_verify(root: Path, capsys: Captured) -> None:
    assert main(["verify", str(root)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{root}: clean"
    overwrite(queue_path(root, "Topic0"), 0, bytes(20))
    assert main(["verify", str(root), "--limit", "5"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("error  queue.missing          Topic0/0: 1 entries are missing, 0 to 0")
    assert out[-1] == f"{root}: DAMAGED, 1 errors"


def test_verify_as_json(root: Path, capsys: Captured) -> None:
    killed(root)
    overwrite(queue_path(root, "Topic1", 1), 80, bytes(20))
    assert main(["verify", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["clean"], found["errors"], found["findingsByKind"]) == (True, 0, {"queue.behind": 1})
    assert found["state"]["left"] == "killed"
    assert found["checked"]["messages"] == 20
    assert main(["verify", str(root), "--json", "--strict"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["kind"], finding["place"], finding["is_error"]) == ("queue.behind", "Topic1/1", True)


def test_dump(root: Path, capsys: Captured) -> None:
    assert main(["dump", str(root), "--output", "json", "--topic", "Topic0", "--count", "2", "--body"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["topic"], row["queueId"], row["keys"]) for row in rows] == [
        ("Topic0", 0, "K0 even"),
        ("Topic0", 1, "K2 even"),
    ]
    assert rows[0]["body"] == "0000 "
    assert main(["dump", str(root), "--since", "2023-11-14T22:13:33.9+00:00"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["offset", "size", "stored", "(UTC)"]
    assert [line.split()[-1] for line in lines] == ["K19"]
    assert [line.split()[2:4] for line in lines] == [["2023-11-14", "22:13:34.000"]]


def test_dump_of_an_unknown_topic(root: Path, capsys: Captured) -> None:
    assert main(["dump", str(root), "--topic", "Topic00"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "rmq-store: topic Topic00 is not in this store; did you mean Topic0?\n"
    assert captured.out == ""
    assert main(["dump", str(root), "--topic", "orders"]) == 2
    assert "there are Topic0, Topic1" in capsys.readouterr().err


def test_version(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("rmq-store 0.")


def test_stats(root: Path, capsys: Captured) -> None:
    assert main(["stats", str(root)]) == 0
    assert "20 messages" in capsys.readouterr().out
    assert main(["stats", str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["topics"].keys() == {"Topic0", "Topic1"}


def test_repair(root: Path, capsys: Captured) -> None:
    overwrite(queue_path(root, "Topic0"), 0, b"\xff" * 20)
    assert main(["repair", str(root), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would build 4 queues with 20 entries")
    assert main(["repair", str(root)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("built 4 queues with 20 entries")
    assert [line.split()[0] for line in out[1:]] == ["kept", "kept"]
    assert main(["verify", str(root)]) == 0


def test_repair_of_a_damaged_log(root: Path, capsys: Captured) -> None:
    overwrite(root / "commitlog" / f"{0:020d}", 4, b"?")
    assert main(["repair", str(root), "--discard"]) == 1
    assert capsys.readouterr().out.startswith("log at 0: no record begins here")


@pytest.mark.parametrize("command", ["verify", "dump", "stats", "repair"])
def test_a_folder_that_is_no_store_is_refused(command: str, tmp_path: Path, capsys: Captured) -> None:
    assert main([command, str(tmp_path / "none")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("rmq-store: ")
    assert "is no store directory" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["verify", ".", "--limit", "0"], "'0' is not a positive whole number"),
        (["verify", ".", "--delay-levels", "soon"], "delay 'soon' must be a number"),
        (["dump", ".", "--since", "yesterday"], "'yesterday' is not a time"),
        (["dump", ".", "--queue", "x"], "'x' is not a whole number"),
        (["frobnicate", "."], "invalid choice"),
        ([], "required"),
    ],
)
def test_bad_arguments(arguments: list[str], told: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert told in capsys.readouterr().err


def test_truncation_at_an_invalid_offset(root: Path, capsys: Captured) -> None:
    assert main(["repair", str(root), "--truncate-at", "3"]) == 2
    assert "the nearest boundary before it is 0" in capsys.readouterr().err

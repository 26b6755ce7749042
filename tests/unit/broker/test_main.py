"""The command `rmq-broker` up to where it serves. (What it does then: `test_broker.py`.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.main import main


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> _Run:
    return _Run(monkeypatch, capsys)


class _Run:
    """Runs the command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._monkeypatch.setattr("sys.argv", ["rmq-broker", *arguments])
        code = main()
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


def test_short_options_set_settings(run: _Run, tmp_path: Path) -> None:
    code, out, _ = run("--print-config", "-n", "10.0.0.1:9876;10.0.0.2:9876", "--store", str(tmp_path))

    assert code == 0
    lines = out.splitlines()
    assert "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876" in lines
    assert f"storePathRootDir={tmp_path}" in lines


def test_an_option_overrides_the_file(run: _Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=of-the-file\nmaxMessageSize=1000\n")

    _, out, _ = run("--print-config", "-c", str(file), "--set", "brokerName=of-the-line")

    assert "brokerName=of-the-line" in out.splitlines()
    assert "maxMessageSize=1000" in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "brokerNmae=x"], "--set: brokerNmae=x: no such setting; did you mean brokerName?"),
        (["--set", "maxMessageSize=lots"], "maxMessageSize=lots: must be a whole number"),
        (["-n", "nowhere"], "-n: namesrvAddr=nowhere: must be host:port"),
        (["--set", "brokerName=a b"], "--set: brokerName=a b: must be a name without spaces"),
        (
            ["--set", "brokerRole=SLAVE"],
            "brokerRole=SLAVE needs a brokerId above 0",
        ),
        (["-c", "no/such/file"], "no/such/file: cannot be read"),
    ],
)
def test_bad_settings_exit_with_2_and_name_the_cause(run: _Run, arguments: list[str], said: str) -> None:
    code, out, err = run("--print-config", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_values_from_the_environment_are_refused_like_others(
    run: _Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_OPT_EXT", "-Xmx4g -Dtls.server.mode=enforced")
    code, out, err = run("--print-config")
    assert (code, out) == (2, "")
    assert "JAVA_OPT_EXT: tls.server.mode=enforced: must be one of disabled, permissive, enforcing" in err

    monkeypatch.setenv("JAVA_OPT_EXT", "-Xmx4g")
    monkeypatch.setenv("NAMESRV_ADDR", "nowhere")
    code, out, err = run("--print-config")
    assert (code, out) == (2, "")
    assert "${NAMESRV_ADDR}: namesrvAddr=nowhere: must be host:port" in err
    assert run("--print-config", "-n", "10.0.0.1:9876")[0] == 0


def test_the_processor_table_is_printed_without_touching_the_store(run: _Run, tmp_path: Path) -> None:
    unknown_host = "brokerIP1=no.such.host.invalid"
    code, out, _ = run("--print-processors", "--store", str(tmp_path / "store"), "--set", unknown_host)
    assert code == 0
    assert "SEND_MESSAGE_V2" in out
    assert not (tmp_path / "store").exists()


def test_unknown_options_are_refused(run: _Run) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--prot", "1")
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shards", "2", "--standalone"], "--shards=2: cannot be combined with --standalone"),
        (["--shards", "2", "--grpc"], "--shards=2: cannot be combined with grpcServerPort or --grpc"),
        (["--shards", "none"], "--shards=none: must be auto, or a whole number from 1 to 256"),
        (["--shards", "2", "--set", "listenPort=65530"], "or at most 1 shards"),
    ],
)
def test_shards_that_cannot_run_are_refused(
    run: _Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    code, _, err = run(*arguments, "--store", str(tmp_path / "store"))

    assert code == 2
    assert said in err
    assert not (tmp_path / "store").exists()


def test_shards_do_not_run_on_the_store_of_a_single_broker(run: _Run, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    code, _, err = run("--shards", "2", "--store", str(tmp_path))

    assert code == 2
    assert "is the store of a broker without shards" in err


def _listening(out: str) -> dict[str, str]:
    """Return the two addresses; defaults are printed as comments."""
    lines = dict(line.lstrip("# ").partition("=")[::2] for line in out.splitlines() if "=" in line)
    return {key: lines[key] for key in ("bindAddress", "brokerIP1")}


def test_a_standalone_broker_serves_this_machine_only(run: _Run) -> None:
    _, out, _ = run("--print-config", "--standalone")
    assert _listening(out) == {"bindAddress": "127.0.0.1", "brokerIP1": "127.0.0.1"}


def test_a_standalone_broker_serves_others_if_told_to(run: _Run) -> None:
    _, out, _ = run("--print-config", "--standalone", "--set", "bindAddress=0.0.0.0")
    assert _listening(out)["bindAddress"] == "0.0.0.0"
    _, out, _ = run("--print-config", "--standalone", "--set", "brokerIP1=10.0.0.1")
    assert _listening(out) == {"bindAddress": "0.0.0.0", "brokerIP1": "10.0.0.1"}

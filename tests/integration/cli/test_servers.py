"""`rmq broker`, `cluster` and `namesrv`, and how a command finds its cluster."""

from __future__ import annotations

import pytest

from rmq_cli.exits import Exit
from tests.support.answering_controller import controller_in_a_thread
from tests.support.clusters import RunningCluster
from tests.support.command_line import CommandLine
from tests.support.ports import free_port


def test_brokers_are_listed_shown_and_changed(rmq: CommandLine) -> None:
    [broker] = rmq.ok("broker list -o json").json
    assert (broker["broker"], broker["id"], broker["role"]) == ("broker-a", 0, "master")
    assert rmq.ok("broker status broker-a -o json").json["brokerVersionDesc"] == "V5_3_3"
    rmq.ok("broker set broker-a longPollingMaxHoldMillis=21000")
    settings = rmq.ok("broker settings broker-a --match longpolling -o json").json
    assert settings["longPollingMaxHoldMillis"] == "21000" and "brokerName" not in settings
    refused = rmq.refused("broker set broker-a longPoling=1", Exit.FAILED)
    assert "longPoling=1: no such setting" in refused
    rmq.ok("produce T one")
    periods = rmq.ok("broker stats broker-a TOPIC_PUT_NUMS T -o json").json
    assert [row["period"] for row in periods] == ["minute", "hour", "day"] and periods[2]["sum"] > 0
    replication = rmq.ok("broker replication broker-a -o json")
    assert replication.json == [] and "in sync" in replication.errors
    rmq.ok("broker clean queues --yes")
    rmq.ok("broker drain broker-a --yes")
    rmq.ok("broker undrain broker-a")


def test_what_a_broker_does_now(rmq: CommandLine) -> None:
    rmq.ok("produce T one")
    runtime = rmq.ok("broker runtime broker-a -o json").json
    assert runtime["version"] == "V5_3_3" and runtime["stored_messages"] > 0
    assert runtime["pull_waiting"] == 0 and runtime["send_longest_wait_seconds"] == 0.0
    told = rmq.refused("broker epochs broker-a", Exit.FAILED)
    assert "enableControllerMode" in told


def test_groups_of_a_controller(rmq: CommandLine) -> None:
    with controller_in_a_thread() as controller:
        assert rmq.ok(f"cluster controller {controller.address} -o json").json["leads"] is True
        master, replica = rmq.ok(f"cluster in-sync {controller.address} -o json").json
        assert (master["id"], master["role"], master["in_sync"]) == (1, "master", True)
        assert (replica["id"], replica["role"], replica["in_sync"]) == (2, "replica", False)
        rmq.ok(f"cluster in-sync {controller.address} --broker broker-z")
        assert controller.asked[-1] == b'["broker-z"]'
    assert "must be host:port" in rmq.refused("cluster controller nowhere", Exit.USAGE)


def test_a_controller_is_told_what_to_do(rmq: CommandLine) -> None:
    with controller_in_a_thread() as controller:
        address = controller.address
        tried = rmq.ok(f"cluster elect {address} broker-a 3 --dry-run").errors
        assert "would make broker 3 the master of group broker-a, whose master is 1" in tried
        done = rmq.ok(f"cluster elect {address} broker-a 3 --yes").errors
        assert done == "broker 3 is the master of group broker-a\n"
        assert "not alive" in rmq.refused(f"cluster elect {address} broker-a 2 --yes", Exit.FAILED)
        rmq.refused(f"cluster elect {address} broker-z 1 --yes", Exit.NOT_FOUND)
        rmq.ok(f"cluster forget {address} broker-a --id 2 --yes")
        assert controller.forgotten[-1].broker_controller_ids_to_clean == "2"
        rmq.refused(f"cluster forget {address} broker-a --id 2 --alive --yes", Exit.USAGE)
        rmq.ok(f"cluster controller-set {address} scanNotActiveBrokerInterval=3000")
        settings = rmq.ok(f"cluster controller-settings {address} -o json").json
        assert settings["scanNotActiveBrokerInterval"] == "3000"


def test_cold_reads_are_shown_and_limited(rmq: CommandLine) -> None:
    rmq.ok("cold limit till 4096 --broker broker-a")
    [row] = rmq.ok("cold show broker-a -o json").json
    assert (row["group"], row["threshold_bytes"], row["period_bytes"]) == ("till", 4096, 0)
    rmq.ok("cold unlimit till")
    assert rmq.ok("cold show broker-a -o json").json == []
    rmq.ok("cold read-ahead off")
    settings = rmq.ok("broker settings broker-a --match dataReadAhead -o json").json
    assert settings == {"dataReadAheadEnable": "false"}
    rmq.ok("cold read-ahead on")
    assert "write on or off" in rmq.refused("cold read-ahead perhaps", Exit.USAGE)


@pytest.mark.parametrize("line", ["-n {} broker list", "-o csv -n {} broker list -o json"])
def test_options_may_stand_before_the_command(rmq: CommandLine, cluster: RunningCluster, line: str) -> None:
    outcome = rmq.run(line.format(cluster.address), NAMESRV_ADDR="127.0.0.1:1")
    assert outcome.code == Exit.DONE, outcome.errors
    assert outcome.text.startswith("[" if "json" in line else "cluster")


def test_an_option_of_the_command_counts_before_one_of_the_root(
    rmq: CommandLine, cluster: RunningCluster
) -> None:
    rmq.ok(f"-n 127.0.0.1:{free_port()} broker list -n {cluster.address}")
    told = rmq.refused(f"--timeout 1 -n 127.0.0.1:{free_port()} broker list", Exit.UNREACHABLE)
    assert "is it running" in told


def test_clusters_are_listed_with_their_load(rmq: CommandLine) -> None:
    assert rmq.ok("cluster list -o csv").text == "cluster,brokers\nDefaultCluster,broker-a\n"
    [row] = rmq.ok("cluster status -o json").json
    assert (row["broker"], row["version"], row["replicas"]) == ("broker-a", "V5_3_3", 0)


def test_settings_and_entries_of_name_servers(rmq: CommandLine) -> None:
    rmq.ok("namesrv set orderMessageEnable=true")
    rows = {row["name"]: row["value"] for row in rmq.ok("namesrv settings -o json").json}
    assert rows["orderMessageEnable"] == "true"
    rmq.ok("namesrv put shop colour blue")
    assert rmq.ok("namesrv entries shop -o json").json == {"colour": "blue"}
    rmq.ok("namesrv delete shop colour --yes")
    assert rmq.ok("namesrv entries shop -o json").json == {}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("broker status broker-z", "no broker broker-z with id 0"),
        ("broker clean everything --yes", "write queues, topics, log"),
        ("broker set broker-a pair", "write KEY=VALUE"),
        ("broker list -n nowhere", "nowhere"),
        ("broker list --access-key root", "belong together"),
        ("broker list --profile nowhere", "no profile nowhere"),
        ("broker list --tls-verify everything", "must be one of 'full', 'certificate', 'none'"),
    ],
)
def test_wrong_values_are_told(rmq: CommandLine, line: str, told: str) -> None:
    assert told in rmq.refused(line, Exit.USAGE)


def test_a_cluster_that_does_not_answer(rmq: CommandLine) -> None:
    told = rmq.refused(f"broker list -n 127.0.0.1:{free_port()} --timeout 1", Exit.UNREACHABLE)
    assert "is it running" in told


def test_without_a_cluster_the_error_says_how_to_name_one(rmq: CommandLine) -> None:
    outcome = rmq.run("broker list", NAMESRV_ADDR="")
    assert outcome.code == Exit.USAGE and "rmq config set PROFILE namesrv" in outcome.errors


def test_profiles_are_set_shown_used_and_removed(rmq: CommandLine, cluster: RunningCluster) -> None:
    assert rmq.ok("config path").text.strip() == str(rmq.profiles)
    rmq.ok(f"config set here namesrv {cluster.address}")
    rmq.ok("config set here output json")
    rmq.ok("config set there namesrv 127.0.0.1:1")
    rmq.ok("config set there secret_key", given="s3cret\n")
    assert rmq.profiles.stat().st_mode & 0o077 == 0, "others cannot read secret keys"
    assert "s3cret" not in rmq.ok("config show there").text
    rows = {row["profile"]: row["default"] for row in rmq.ok("config list -o json").json}
    assert rows == {"here": True, "there": False}
    outcome = rmq.run("broker list", NAMESRV_ADDR="")
    assert outcome.json[0]["broker"] == "broker-a", "name server and form of output are the profile's"
    assert rmq.run("broker list --profile here -o csv", NAMESRV_ADDR="127.0.0.1:1").text.startswith(
        "cluster,"
    )
    rmq.ok("config use there")
    assert rmq.run("broker list", NAMESRV_ADDR="").code == Exit.USAGE, "an access key is missing"
    rmq.ok("config remove there --yes")
    rmq.refused("config show there", Exit.USAGE)
    for line, told in (
        ("config set here colour blue", "unknown key colour"),
        ("config set here tls perhaps", "must be true or false"),
        ("config set here timeout soon", "must be a number of seconds"),
        ("config use nowhere", "no profile nowhere"),
    ):
        assert told in rmq.refused(line, Exit.USAGE)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("profiles = 1", "must be tables"),
        ("[profiles.a]\ncolour = 1", "unknown key colour"),
        ("[profiles.a]\ntls = 1", "tls must be a bool"),
        ("[profiles", "cannot be read"),
    ],
)
def test_a_wrong_file_of_profiles_is_told(rmq: CommandLine, content: str, told: str) -> None:
    rmq.profiles.write_text(content)
    assert told in rmq.refused("broker list", Exit.USAGE)

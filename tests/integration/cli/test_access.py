"""`rmq user` and `rmq acl`, with a broker that serves known users only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmq_cli.exits import Exit
from tests.support.clusters import cluster_in_a_thread
from tests.support.command_line import CommandLine
from tests.support.signed_requests import AUTHENTICATION, ROOT


@pytest.fixture
def rmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder = tmp_path_factory.mktemp("guarded")
    with cluster_in_a_thread(folder, {"broker-a": {}, "broker-b": {}}, **AUTHENTICATION) as cluster:
        rmq = CommandLine(cluster.address, folder / "config.toml")
        for key, value in (
            ("namesrv", cluster.address),
            ("access_key", ROOT.access_key),
            ("secret_key", ROOT.secret_key),
        ):
            rmq.ok(f"config set root {key} {value}")
        yield rmq


def test_users_and_rules(rmq: CommandLine) -> None:
    rmq.ok("user create till --password tills-secret")
    refused = rmq.refused("user create till --password x", Exit.EXISTS)
    assert "user till exists on broker-a, broker-b" in refused
    user, _ = rmq.ok("user list --match till -o json").json
    assert (user["user"], user["super"], user["enabled"]) == ("till", False, True)
    rmq.ok("acl set till Topic:orders Pub Sub --from 10.0.0.0/8")
    rule, _ = rmq.ok("acl list --user till -o json").json
    assert (rule["resource"], rule["actions"], rule["decision"]) == ("Topic:orders", ["Pub", "Sub"], "allow")
    rmq.ok("acl set till Topic:orders Pub --deny")
    assert rmq.ok("acl list --user till -o json").json[0]["decision"] == "deny"
    rmq.ok("acl delete till --resource Topic:orders --yes")
    assert rmq.ok("acl list --user till -o json").json == []
    rmq.ok("user update till --disable")
    assert not rmq.ok("user list --match till -o json").json[0]["enabled"]
    as_till = "--access-key till --secret-key tills-secret"
    assert "disabled" in rmq.refused(f"user list {as_till}", Exit.REFUSED)
    assert rmq.refused("user list --access-key till --secret-key wrong", Exit.REFUSED)
    assert "would delete user till from broker-a" in rmq.ok("user delete till --dry-run").errors
    rmq.ok("user delete till --yes")
    assert "no broker has the user till" in rmq.refused("user delete till --yes", Exit.NOT_FOUND)


def test_users_and_rules_are_copied(rmq: CommandLine) -> None:
    rmq.ok("user create till --password tills-secret --broker broker-a")
    rmq.ok("acl set till Topic:orders Pub --broker broker-a")
    assert "would copy the users till" in rmq.ok("user copy broker-a broker-b --user till --dry-run").errors
    assert {row["broker"] for row in rmq.ok("user list --match till -o json").json} == {"broker-a"}
    rmq.ok("user copy broker-a broker-b --user till")
    both = ["broker-a", "broker-b"]
    assert [row["broker"] for row in rmq.ok("user list --match till -o json").json] == both
    assert "copied to broker-b: till" in rmq.ok("acl copy broker-a broker-b").errors
    assert [row["broker"] for row in rmq.ok("acl list --user till -o json").json] == both
    assert "has no user nobody" in rmq.refused("user copy broker-a broker-b --user nobody", Exit.USAGE)

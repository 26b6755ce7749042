"""Administration of users and their rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_client import (
    AccessRule,
    Admin,
    AlreadyExists,
    ClientSettings,
    Credentials,
    NotAuthenticated,
    UsageError,
)
from tests.support.clusters import running_cluster
from tests.support.signed_requests import AUTHENTICATION, ROOT


async def test_users_and_rules_are_created_changed_and_deleted(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, {"broker-a": {}}, **AUTHENTICATION) as cluster,
        Admin(cluster.address, settings=ClientSettings(credentials=ROOT)) as admin,
    ):
        await admin.create_user("till", "till's secret")
        with pytest.raises(AlreadyExists, match="user till exists on broker-a"):
            await admin.create_user("till", "another")
        assert (await admin.user("till"))["broker-a"].name == "till"
        rule = AccessRule("Topic:orders", ("Pub", "Sub"), source_ips=("10.0.0.0/8",))
        await admin.create_rules("till", [rule])
        assert (await admin.user_rules("till"))["broker-a"].rules == (rule,)
        denied = AccessRule("Topic:orders", ("Pub",), allow=False)
        await admin.update_rules("till", [denied])
        [rules] = (await admin.rules(user_filter="till"))["broker-a"]
        assert (rules.user, rules.rules) == ("till", (denied,))
        await admin.delete_rules("till", "Topic:orders")
        assert await admin.user_rules("till") == {}
        await admin.update_user("till", enabled=False)
        [user] = (await admin.users("till"))["broker-a"]
        assert not user.enabled and not user.is_super
        assert "secret" not in repr(user)
        as_till = ClientSettings(credentials=Credentials("till", "till's secret"))
        async with Admin(cluster.address, settings=as_till) as refused:
            with pytest.raises(NotAuthenticated):
                await refused.users()
        await admin.delete_user("till")
        assert await admin.user("till") == {}
        for wrong in (
            admin.create_user("till", ""),
            admin.update_user("till"),
            admin.create_rules("till", []),
        ):
            with pytest.raises(UsageError):
                await wrong

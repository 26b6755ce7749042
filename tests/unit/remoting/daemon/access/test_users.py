"""The table of users."""

from __future__ import annotations

import logging

import pytest

from rmq_remoting.bodies.access_control import UserInfo, UserStatus, UserType
from rmq_remoting.daemon.access import users as module
from rmq_remoting.daemon.access.refusal import UserProblem
from rmq_remoting.daemon.access.users import UserTable
from rmq_remoting.errors import BodyError


def _info(name: str, password: str | None = "secret", **members: str) -> UserInfo:
    return UserInfo(username=name, password=password, **members)


@pytest.fixture
def table() -> UserTable:
    users = UserTable()
    users.create(_info("root", user_type="Super"))
    users.create(_info("anna"))
    return users


def test_a_new_user_is_normal_and_enabled(table: UserTable) -> None:
    user = table.get("anna")
    assert user is not None
    assert (user.type, user.status, user.password) == (UserType.NORMAL, UserStatus.ENABLE, "secret")
    assert table.get("bert") is None


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        (_info("anna"), "exists already"),
        (_info(" "), "the username is blank"),
        (_info("bert", ""), "the password is blank"),
        (_info("bert", None), "the password is blank"),
        (_info("be\nrt"), "printable characters"),
        (_info("b" * 256), "at most 255"),
        (_info("bert", "topsecret "), "without spaces at its ends"),
    ],
)
def test_users_that_cannot_be_created(table: UserTable, info: UserInfo, problem: str) -> None:
    with pytest.raises(UserProblem, match=problem) as refused:
        table.create(info)
    assert "topsecret" not in str(refused.value)
    assert len(table) == 2


def test_unknown_types_are_refused(table: UserTable) -> None:
    with pytest.raises(BodyError, match="must be one of Super, Normal"):
        table.create(_info("bert", user_type="Admin"))
    with pytest.raises(BodyError, match="must be one of enable, disable"):
        table.update(_info("anna", None, user_status="gone"))
    table.update(_info("anna", None, user_type="SUPER", user_status="Disable"))
    user = table.get("anna")
    assert user is not None
    assert (user.is_super, user.is_enabled) == (True, False)


def test_an_update_changes_what_it_has(table: UserTable) -> None:
    table.update(_info("anna", None, user_status="disable"))
    table.update(_info("anna", "other"))
    user = table.get("anna")
    assert user is not None
    assert (user.password, user.status) == ("other", UserStatus.DISABLE)
    with pytest.raises(UserProblem, match="'bert' does not exist"):
        table.update(_info("bert"))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.delete("root"),
        lambda table: table.update(_info("root", None, user_type="Normal")),
        lambda table: table.update(_info("root", None, user_status="disable")),
    ],
)
def test_the_last_super_user_stays(table: UserTable, change: object) -> None:
    assert callable(change)
    with pytest.raises(UserProblem, match="root is the last enabled super user"):
        change(table)
    table.create(_info("second", user_type="Super"))
    change(table)


def test_deletions(table: UserTable) -> None:
    assert (table.delete("anna"), table.delete("anna")) == (True, False)


def test_names_are_searched(table: UserTable) -> None:
    table.create(_info("joanna"))
    assert [user.name for user in table.named_like("anna")] == ["anna", "joanna"]
    assert len(table.named_like("")) == 3


def test_the_number_of_users_is_bounded(table: UserTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_USERS", 3)
    table.create(_info("bert"))
    with pytest.raises(UserProblem, match="there are 3 users already"):
        table.create(_info("carl"))


def test_the_persistent_form(table: UserTable) -> None:
    table.update(_info("anna", None, user_status="disable"))
    copy = UserTable()
    copy.decode(table.encode())
    assert copy.named_like("") == table.named_like("")
    with pytest.raises(BodyError):
        copy.decode(b"{broken")


def test_changes_are_told_and_passwords_are_not_logged(
    table: UserTable, caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[int] = []
    table.on_change(lambda: changes.append(len(table)))
    with caplog.at_level(logging.INFO):
        table.create(_info("bert", "opensesame"))
        table.update(_info("bert", "opensesame2"))
        table.delete("bert")
    assert changes == [3, 3, 2]
    assert "user updated user=bert type=Normal status=enable password=changed" in caplog.text
    assert "opensesame" not in caplog.text
    assert "opensesame" not in repr(_info("bert", "opensesame"))

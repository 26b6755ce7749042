"""Files of access control of version 1: their accounts, and the mistakes that are refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rmq_broker.access.plain_acl import Account, PlainAclProblem, read_plain_acl
from tests.support.rows import each_row

# As in Apache's distributions with version 1.
_DISTRIBUTED = """\
# Licensed to …
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC = SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - "%RETRY%groupB=PUB|SUB"
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: "  12345678"
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""


def _write(home: Path, text: str, name: str = "plain_acl.yml") -> Path:
    path = home / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _rules(account: Account) -> dict[str, list[tuple[str | None, list[str], str | None]]]:
    assert account.rules is not None
    return {
        policy.policy_type or "": [(each.resource, each.actions, each.decision) for each in policy.entries]
        for policy in account.rules.policies
    }


def test_accounts_become_users_with_rules(tmp_path: Path) -> None:
    path = _write(tmp_path, _DISTRIBUTED)
    read = read_plain_acl(tmp_path)
    assert read.files == (path,)
    assert read.global_addresses == ("10.10.103.*", "192.168.0.*")
    normal, admin = read.accounts
    assert (normal.name, normal.secret_key, normal.is_admin) == ("RocketMQ", "12345678", False)
    assert normal.place == f"{path}:7"
    assert _rules(normal) == {
        "Custom": [
            ("Topic:topicA", ["All"], "Deny"),
            ("Topic:topicB", ["Pub", "Sub"], "Allow"),
            ("Topic:topicC", ["Sub"], "Allow"),
            ("Group:groupA", ["All"], "Deny"),
            ("Group:groupB", ["Pub", "Sub"], "Allow"),
            ("Group:groupC", ["Sub"], "Allow"),
        ],
        "Default": [("Topic:*", ["All"], "Deny"), ("Group:*", ["Sub"], "Allow")],
    }
    assert (admin.name, admin.secret_key, admin.is_admin) == ("rocketmq2", "  12345678", True)
    assert (admin.rules, admin.white_address) == (None, "192.168.1.*")
    assert "12345678" not in repr(read)


def test_all_files_are_read(tmp_path: Path) -> None:
    account = "accounts:\n- {{accessKey: {0}, secretKey: 012345}}\n"
    _write(tmp_path, account.format("plain"))
    _write(tmp_path, account.format("one"), "acl/one.yml")
    _write(tmp_path, account.format("deep"), "acl/team/deep.yaml")
    _write(tmp_path, "not: [read", "acl/notes.txt")
    _write(tmp_path, "accessKey: a\n", "tools.yml")
    read = read_plain_acl(tmp_path)
    # A number stays as it was written.
    assert [(each.name, each.secret_key) for each in read.accounts] == [
        ("one", "012345"),
        ("deep", "012345"),
        ("plain", "012345"),
    ]


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "accounts:\n", "accounts: []\ndataVersion:\n- counter: 1\n"]
)
def test_files_without_accounts(tmp_path: Path, text: str) -> None:
    _write(tmp_path, text)
    assert read_plain_acl(tmp_path).accounts == ()


def test_no_file_at_all(tmp_path: Path) -> None:
    assert read_plain_acl(tmp_path).files == ()


_ACCOUNT = "accounts:\n- accessKey: anna\n  secretKey: s3cret-key\n"


@each_row(
    ("text", "line", "problem"),
    [
        ("- accessKey: anna\n", 1, "must have keys, of accounts,"),
        ("accounts:\n  accessKey: anna\n", 2, "must be a list: begin each item with '- '"),
        ("accounts:\n- anna\n", 2, "must have keys, of accessKey,"),
        ("accounts:\n- secretKey: s3cret-key\n", 2, "an account without accessKey: add it"),
        ("accounts:\n- accessKey: anna\n  secretKey:\n", 2, "an account without secretKey: add it"),
        (f"{_ACCOUNT}  topicPerm: [T=SUB]\n", 4, "unknown key 'topicPerm': must be one of accessKey,"),
        (f"{_ACCOUNT}  secretKey: s3cret-key\n", 4, "the key secretKey stands here twice"),
        (f"{_ACCOUNT}  admin: maybe\n", 4, "admin must be true or false"),
        (f"{_ACCOUNT}  topicPerms: T=SUB\n", 4, "must be a list"),
        (f"{_ACCOUNT}  topicPerms:\n  - T\n", 5, "permission '': must be one of DENY, PUB, SUB, PUB|SUB"),
        (f"{_ACCOUNT}  topicPerms:\n  - T=PUBB\n", 5, "permission 'PUBB': must be one of"),
        (f"{_ACCOUNT}  topicPerms:\n  - T=ANY\n", 5, "permission 'ANY': must be one of"),
        (f"{_ACCOUNT}  topicPerms:\n  - T=a=SUB\n", 5, "'T=a=SUB' must be NAME=PERMISSION"),
        (f"{_ACCOUNT}  topicPerms:\n  - T*=SUB\n", 5, "with the whole name of one Topic"),
        (f"{_ACCOUNT}  groupPerms:\n  - =SUB\n", 5, "with the whole name of one Group"),
        (f"{_ACCOUNT}  groupPerms:\n  - G=SUB\n  - '%RETRY%G=DENY'\n", 6, "'G' stands in the list twice"),
        (f"{_ACCOUNT}  groupPerms:\n  - [G]\n", 5, "must be a text"),
        (f"{_ACCOUNT}  defaultTopicPerm: deny\n", 4, "permission 'deny': must be one of DENY"),
        (f"{_ACCOUNT}\tadmin: true\n", 4, "not YAML ("),
        (f"{_ACCOUNT}- accessKey: 'b\n  secretKey: s3cret-key\n", 6, "not YAML ("),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(PlainAclProblem) as refused:
        read_plain_acl(tmp_path)
    message = str(refused.value)
    assert message.startswith(f"{path}:{line}: ")
    assert problem in message
    assert "s3cret-key" not in message


def test_an_account_that_is_in_two_files(tmp_path: Path) -> None:
    first = _write(tmp_path, _ACCOUNT, "acl/a.yml")
    second = _write(tmp_path, _ACCOUNT)
    with pytest.raises(PlainAclProblem) as refused:
        read_plain_acl(tmp_path)
    assert f"{second}:2: accessKey 'anna' is that of {first}:2, too: remove one" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"accounts: \xff\n", "is not UTF-8 at byte 10"),
        (b"accounts: \x01\n", "control characters"),
        (b"[" * 100_000, "nested too deeply"),
        (b"#" * (4 * 1024 * 1024 + 1), "the limit is 4194304"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, problem: str) -> None:
    path = _write(tmp_path, "")
    path.write_bytes(content)
    with pytest.raises(PlainAclProblem, match=problem):
        read_plain_acl(tmp_path)


def test_without_pyyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert read_plain_acl(tmp_path).accounts == ()
    _write(tmp_path, _DISTRIBUTED)
    with pytest.raises(PlainAclProblem, match=r"pip install 'rmq\[broker\]'"):
        read_plain_acl(tmp_path)

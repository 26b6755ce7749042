"""Files of access control of version 1, `plain_acl.yml`, as users and rules of version 2.

Each account becomes a user. Its lists of topics and groups become rules of type `Custom`, and its default
permissions become rules of type `Default` for all topics and all groups. Source: Apache RocketMQ 5.3.3,
AuthMigrator and PlainPermissionManager. Apache's broker skips entries that it cannot read, and takes an
unknown permission for all rights. Here these are errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from rmq_remoting.bodies.access_control import AclInfo, PolicyEntryInfo, PolicyInfo
from rmq_remoting.daemon.access.policies import (
    Action,
    Decision,
    PolicyType,
    ResourceType,
    rules_of,
)
from rmq_remoting.daemon.access.refusal import PolicyProblem
from rmq_remoting.errors import shown

if TYPE_CHECKING:
    import yaml

# Actions and decision of each permission.
_PERMISSIONS: Final = {
    "DENY": ([Action.ALL], Decision.DENY),
    "PUB": ([Action.PUB], Decision.ALLOW),
    "SUB": ([Action.SUB], Decision.ALLOW),
    "PUB|SUB": ([Action.PUB, Action.SUB], Decision.ALLOW),
    "SUB|PUB": ([Action.PUB, Action.SUB], Decision.ALLOW),
}
_FILE_KEYS: Final = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT_KEYS: Final = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)
_GROUP_PREFIXES: Final = ("%RETRY%", "%DLQ%")
_NULL_TAG: Final = "tag:yaml.org,2002:null"
_BOOLEAN_TAG: Final = "tag:yaml.org,2002:bool"
_TRUE: Final = frozenset({"true", "yes", "on"})
_MAX_FILE_BYTES: Final = 4 * 1024 * 1024


class PlainAclProblem(Exception):
    """A file that cannot be migrated; the message names file, line and cure, and holds no secret key."""


@dataclass(frozen=True, slots=True)
class Account:
    """One account of a file."""

    place: str
    name: str
    secret_key: str = field(repr=False)
    is_admin: bool
    rules: AclInfo | None
    white_address: str


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """The content of all files."""

    files: tuple[Path, ...]
    accounts: tuple[Account, ...]
    global_addresses: tuple[str, ...]


def read_plain_acl(home: Path) -> PlainAcl:
    """Read the files below `home`, those of `conf/acl` first. Raises PlainAclProblem; blocks on the disk."""
    files = tuple(_files(home))
    accounts: dict[str, Account] = {}
    addresses: list[str] = []
    for path in files:
        content = _File(path)
        addresses += content.global_addresses
        for account in content.accounts():
            known = accounts.setdefault(account.name, account)
            if known is not account:
                raise PlainAclProblem(
                    f"{account.place}: accessKey {shown(account.name)} is that of {known.place}, too: remove "
                    "one of the accounts"
                )
    return PlainAcl(files, tuple(accounts.values()), tuple(addresses))


def _files(home: Path) -> Iterator[Path]:
    conf = home / "conf"
    yield from sorted(
        path for path in (conf / "acl").rglob("*") if path.suffix in (".yml", ".yaml") and path.is_file()
    )
    plain = conf / "plain_acl.yml"
    if plain.is_file():
        yield plain


class _File:
    """One parsed file. Nodes are read as they stand in it, so that every error can name its line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        root = self._parse()
        self._members = {} if root is None else self._mapping(root, _FILE_KEYS)
        node = self._members.get("globalWhiteRemoteAddresses")
        self.global_addresses = [text for text, _ in self._texts(node)]

    def accounts(self) -> Iterator[Account]:
        """Yield the accounts. Raises PlainAclProblem."""
        for node in self._items(self._members.get("accounts")):
            yield self._account(node)

    def _parse(self) -> yaml.Node | None:
        try:
            import yaml  # noqa: PLC0415 (most brokers never need it)
        except ImportError:
            raise PlainAclProblem(
                "migrateAuthFromV1Enabled needs PyYAML: run pip install 'rmq[broker]'"
            ) from None
        path = self._path
        try:
            content = path.read_bytes()
        except OSError as error:
            raise PlainAclProblem(f"{path} cannot be read: {error.strerror or error}") from error
        if len(content) > _MAX_FILE_BYTES:
            raise PlainAclProblem(
                f"{path} has {len(content)} bytes, the limit is {_MAX_FILE_BYTES}: split it"
            )
        try:
            return yaml.compose(content.decode(), Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            raise PlainAclProblem(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8") from error
        except yaml.MarkedYAMLError as error:
            # The text of the error would quote the line, which may hold a secret key.
            line = "?" if error.problem_mark is None else error.problem_mark.line + 1
            raise PlainAclProblem(
                f"{path}:{line}: not YAML ({error.problem}): correct the line, or those above it"
            ) from None
        except yaml.YAMLError:
            raise PlainAclProblem(f"{path}: not YAML: it holds control characters; remove them") from None
        except RecursionError:
            raise PlainAclProblem(f"{path}: nested too deeply: write accounts as a plain list") from None

    # --- accounts ---

    def _account(self, node: yaml.Node) -> Account:
        members = self._mapping(node, _ACCOUNT_KEYS)
        name = self._needed(node, members, "accessKey")
        return Account(
            self._place(node),
            name,
            self._needed(node, members, "secretKey"),
            self._boolean(members.get("admin")),
            self._rules(node, name, members),
            self._text(members.get("whiteRemoteAddress")),
        )

    def _rules(self, node: yaml.Node, name: str, members: dict[str, yaml.Node]) -> AclInfo | None:
        custom = [
            *self._entries(ResourceType.TOPIC, members.get("topicPerms")),
            *self._entries(ResourceType.GROUP, members.get("groupPerms")),
        ]
        default = [
            *self._default(ResourceType.TOPIC, members.get("defaultTopicPerm")),
            *self._default(ResourceType.GROUP, members.get("defaultGroupPerm")),
        ]
        policies = [
            PolicyInfo(policy_type=kind.value, entries=entries)
            for kind, entries in ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
            if entries
        ]
        if not policies:
            return None
        rules = AclInfo(subject=f"User:{name}", policies=policies)
        try:
            list(rules_of(rules))
        except PolicyProblem as problem:
            self._fail(node, f"account {shown(name)}: {problem}")
        return rules

    def _entries(self, kind: ResourceType, node: yaml.Node | None) -> Iterator[PolicyEntryInfo]:
        """Yield the rules of a list of `name=PERMISSION`."""
        seen = set()
        for text, item in self._texts(node):
            name, _, permission = text.partition("=")
            name = name.strip()
            if kind is ResourceType.GROUP:
                for prefix in _GROUP_PREFIXES:
                    name = name.removeprefix(prefix)
            if not name or "*" in name or "=" in permission:
                self._fail(item, f"{shown(text)} must be NAME=PERMISSION, with the whole name of one {kind}")
            if name in seen:
                self._fail(item, f"{kind} {shown(name)} stands in the list twice: remove one of the entries")
            seen.add(name)
            yield self._entry(f"{kind}:{name}", permission, item)

    def _default(self, kind: ResourceType, node: yaml.Node | None) -> Iterator[PolicyEntryInfo]:
        permission = self._text(node)
        if node is not None and permission:
            yield self._entry(f"{kind}:*", permission, node)

    def _entry(self, resource: str, permission: str, node: yaml.Node) -> PolicyEntryInfo:
        known = _PERMISSIONS.get(permission.strip())
        if known is None:
            self._fail(node, f"permission {shown(permission)}: must be one of {', '.join(_PERMISSIONS)}")
        actions, decision = known
        return PolicyEntryInfo(resource=resource, actions=list(actions), decision=decision.value)

    # --- nodes ---

    def _mapping(self, node: yaml.Node, allowed: Iterable[str]) -> dict[str, yaml.Node]:
        if node.id != "mapping":
            self._fail(node, f"must have keys, of {', '.join(sorted(allowed))}")
        members: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if key.id == "scalar" else ""
            if name not in allowed:
                self._fail(key, f"unknown key {shown(name)}: must be one of {', '.join(sorted(allowed))}")
            if name in members:
                self._fail(key, f"the key {name} stands here twice: remove one of them")
            members[name] = value
        return {name: value for name, value in members.items() if value.tag != _NULL_TAG}

    def _items(self, node: yaml.Node | None) -> list[yaml.Node]:
        if node is None:
            return []
        if node.id != "sequence":
            self._fail(node, "must be a list: begin each item with '- '")
        return list(node.value)

    def _texts(self, node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
        for item in self._items(node):
            yield self._text(item), item

    def _text(self, node: yaml.Node | None) -> str:
        if node is None:
            return ""
        if node.id != "scalar":
            self._fail(node, "must be a text")
        return str(node.value).strip()

    def _boolean(self, node: yaml.Node | None) -> bool:
        if node is None:
            return False
        if node.tag != _BOOLEAN_TAG:
            self._fail(node, "admin must be true or false")
        return str(node.value).lower() in _TRUE

    def _needed(self, node: yaml.Node, members: dict[str, yaml.Node], key: str) -> str:
        value = members.get(key)
        if value is None or not self._text(value):
            self._fail(node, f"an account without {key}: add it, or remove the account")
        return str(value.value)  # with spaces at its ends, which clients would sign with

    def _place(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"

    def _fail(self, node: yaml.Node, problem: str) -> NoReturn:
        raise PlainAclProblem(f"{self._place(node)}: {problem}")

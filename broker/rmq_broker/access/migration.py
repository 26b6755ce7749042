"""Migration of access control of version 1 at start (Apache RocketMQ 5.3.3, AuthMigrator)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq_remoting.bodies.access_control import UserInfo, UserType
from rmq_remoting.daemon.access.refusal import AccessChangeRefused
from rmq_remoting.daemon.lifecycle import StartError

from .plain_acl import Account, PlainAcl, PlainAclProblem, read_plain_acl

if TYPE_CHECKING:
    from rmq_remoting.daemon.access.acls import AclTable
    from rmq_remoting.daemon.access.users import UserTable

    from ..settings.access import BrokerAccessSettings

log = logging.getLogger("rmq.audit")


class Migration:
    """Creates the accounts of `plain_acl.yml` as users with rules; accounts with a user stay as they are."""

    def __init__(self, settings: BrokerAccessSettings, users: UserTable, acls: AclTable) -> None:
        self._settings = settings
        self._users = users
        self._acls = acls
        self._read: PlainAcl | None = None

    def load(self) -> None:
        """Read the files if the settings ask for it. Raises StartError; blocks on the disk."""
        if not self._settings.migrate_auth_from_v1_enabled:
            return
        home = self._settings.rocketmq_home
        if home is None:
            raise StartError(
                "migrateAuthFromV1Enabled=true, and rocketmqHome is not set: set it, or ROCKETMQ_HOME, to "
                "the folder with conf/plain_acl.yml"
            )
        try:
            self._read = read_plain_acl(home)
        except PlainAclProblem as problem:
            raise StartError(f"migrateAuthFromV1Enabled: {problem}") from problem

    def apply(self) -> None:
        """Create the missing users and their rules. Raises StartError for an account that cannot be one."""
        read, self._read = self._read, None
        if read is None:
            return
        missing = [account for account in read.accounts if self._users.get(account.name) is None]
        for account in missing:
            self._create(account)
        log.info(
            "accounts of version 1 migrated created=%d existing=%d files=%s; remove "
            "migrateAuthFromV1Enabled, or deleted users are created again at the next start",
            len(missing),
            len(read.accounts) - len(missing),
            ", ".join(map(str, read.files)) or f"none below {self._settings.rocketmq_home}/conf",
        )
        addresses = [*read.global_addresses, *(each.white_address for each in read.accounts)]
        if any(addresses):
            log.warning(
                "addresses without signature not migrated addresses=%s; give the clients there credentials",
                ", ".join(filter(None, addresses)),
            )

    def _create(self, account: Account) -> None:
        kind = UserType.SUPER if account.is_admin else UserType.NORMAL
        info = UserInfo(username=account.name, password=account.secret_key, user_type=kind.value)
        try:
            self._users.create(info)
            if account.rules is not None:
                self._acls.add(account.name, account.rules)
        except AccessChangeRefused as refusal:
            raise StartError(
                f"migrateAuthFromV1Enabled: {account.place}: {refusal}; change the account there"
            ) from refusal

"""Administration from listed addresses only."""

from __future__ import annotations

from typing import cast

import pytest

from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.admin_allowlist import AdminAllowlist, networks_of
from rmq_remoting.errors import CommandError

_ADMIN, _OTHER = 25, 310


class _Peer:
    def __init__(self, host: str) -> None:
        self.remote_address = (host, 5000)
        self.peer = f"{host}:5000"


def _is_refused(allowlist: AdminAllowlist, host: str, code: int = _ADMIN) -> bool:
    try:
        allowlist.check(cast(Connection, _Peer(host)), RemotingCommand.request(code))
    except CommandError as refusal:
        assert refusal.code == 16
        assert "adminAllowlist" in refusal.remark
        return True
    return False


async def test_only_listed_addresses_may_administrate() -> None:
    allowlist = AdminAllowlist(networks_of("10.0.0.5, 10.1.0.0/16,2001:db8::/32"), {_ADMIN}.__contains__)
    allowed = ["10.0.0.5", "10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"]
    refused = ["10.0.0.6", "127.0.0.1", "2001:db9::7", "", "/run/socket"]
    assert [_is_refused(allowlist, host) for host in allowed] == [False] * len(allowed)
    assert [_is_refused(allowlist, host) for host in refused] == [True] * len(refused)
    assert not any(_is_refused(allowlist, host, _OTHER) for host in refused)


def test_lists_that_cannot_be_read() -> None:
    assert networks_of(" ") == ()
    with pytest.raises(ValueError, match=r"adminAllowlist=10\.0\.0\.0/33: .*such as 10\.0\.0\.5"):
        networks_of("10.0.0.0/33")

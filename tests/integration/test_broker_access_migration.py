"""A broker that takes over the accounts of `plain_acl.yml`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rmq_client import Credentials
from rmq_remoting.bodies.access_control import UserInfo
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.broker_requests import create_topic, send
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import RawClient
from tests.support.signed_requests import AUTHENTICATION, ROOT, ask_as, signed

_ANNA = Credentials("anna", "annas-key")
_BOSS = Credentials("boss", "bosss-key")
_ACCOUNTS = """\
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- accessKey: anna
  secretKey: annas-key
  defaultTopicPerm: SUB
  topicPerms: [T=PUB|SUB, Secret=DENY]
- accessKey: boss
  secretKey: bosss-key
  admin: true
- accessKey: root
  secretKey: another-key
"""


def _settings(home: Path, **keys: object) -> dict[str, object]:
    migration = {"migrateAuthFromV1Enabled": "true", "rocketmqHome": home}
    return {**AUTHENTICATION, "authorizationEnabled": "true", **migration, **keys}


def _write(home: Path, text: str) -> None:
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(text)


async def _refused(folder: Path, **keys: object) -> str:
    """The reason why a broker does not start."""
    broker = RunningBroker(broker_configuration(folder, **keys))
    with pytest.raises(StartError) as refused:
        await broker.start()
    await broker.stop()
    return str(refused.value)


async def _sends(client: RawClient, topic: str) -> bool:
    """Whether the migrated user may send to a topic."""
    answer = await client.ask(signed(send(topic), _ANNA))
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
    return answer.code == ResponseCode.SUCCESS


async def test_accounts_are_users_at_once_and_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write(tmp_path, _ACCOUNTS)
    with caplog.at_level(logging.INFO):
        async with running_broker(tmp_path, **_settings(tmp_path)) as broker, broker.client() as client:
            for topic in ("T", "U", "Secret"):
                made = await client.ask(signed(create_topic(topic, 1), _BOSS))
                assert made.code == ResponseCode.SUCCESS
            assert [await _sends(client, topic) for topic in ("T", "U", "Secret")] == [True, False, False]
            shown = await ask_as(client, Code.AUTH_GET_USER, {"username": "boss"})
            assert UserInfo.decode(shown.body).user_type == "Super"
    text = caplog.text
    assert "accounts of version 1 migrated created=2 existing=1" in text
    assert "addresses without signature not migrated addresses=10.10.103.*" in text
    assert "annas-key" not in text and "bosss-key" not in text
    # The users stay without the files; users that exist are not changed by the files.
    (tmp_path / "conf" / "plain_acl.yml").unlink()
    async with running_broker(tmp_path, **_settings(tmp_path)) as broker, broker.client() as client:
        assert await _sends(client, "T")
        await ask_as(client, Code.AUTH_DELETE_ACL, {"subject": "User:anna"})
    _write(tmp_path, _ACCOUNTS.replace("annas-key", "a-new-key"))
    async with running_broker(tmp_path, **_settings(tmp_path)) as broker, broker.client() as client:
        assert not await _sends(client, "T")
        answer = await ask_as(client, Code.AUTH_GET_ACL, {"subject": "User:anna"})
        assert answer.body == b""


async def test_a_migrated_account_may_be_the_only_user(tmp_path: Path) -> None:
    """`initAuthenticationUser` is not needed then, as little as the broker's own keys."""
    _write(tmp_path, _ACCOUNTS)
    keys = _settings(tmp_path, initAuthenticationUser="", innerClientAuthenticationCredentials="")
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        assert (await ask_as(client, Code.GET_BROKER_CONFIG, keys=_BOSS)).code == ResponseCode.SUCCESS


async def test_a_mistake_refuses_the_start(tmp_path: Path) -> None:
    place = f"{tmp_path}/conf/plain_acl.yml"
    _write(tmp_path, _ACCOUNTS.replace("PUB|SUB", "PUP"))
    reason = await _refused(tmp_path, **_settings(tmp_path))
    assert reason.startswith(f"migrateAuthFromV1Enabled: {place}:6: permission 'PUP': must be one of")
    _write(tmp_path, _ACCOUNTS.replace("annas-key", "x" * 256))
    reason = await _refused(tmp_path, **_settings(tmp_path))
    assert reason.startswith(f"migrateAuthFromV1Enabled: {place}:3: the password must have at most 255")
    _write(tmp_path, _ACCOUNTS.replace("annas-key", "' annas-key'"))
    assert "without spaces at its ends; change the account there" in await _refused(
        tmp_path, **_settings(tmp_path)
    )


async def test_the_folder_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    reason = await _refused(tmp_path, **_settings(tmp_path, rocketmqHome=""))
    assert "rocketmqHome is not set" in reason
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    keys = _settings(tmp_path)
    del keys["rocketmqHome"]
    _write(tmp_path, _ACCOUNTS)
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        assert (await ask_as(client, Code.GET_BROKER_CONFIG, keys=_BOSS)).code == ResponseCode.SUCCESS


async def test_without_the_setting_nothing_is_read(tmp_path: Path) -> None:
    _write(tmp_path, "not: [yaml")
    keys = _settings(tmp_path, migrateAuthFromV1Enabled="false")
    async with running_broker(tmp_path, **keys) as broker, broker.client() as client:
        assert (await ask_as(client, Code.GET_BROKER_CONFIG, keys=ROOT)).code == ResponseCode.SUCCESS

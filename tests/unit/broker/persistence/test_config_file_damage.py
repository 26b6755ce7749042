"""The broker's own JSON files missing, empty, torn and garbled: the backup is used, or the start is refused.

With the real owners of their states and files that Apache's broker wrote. (How files are written, and what
becomes of a damaged one then: `test_config_file.py`.)
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_broker.groups.table import SubscriptionGroupTable
from rmq_broker.offsets.table import ConsumerOffsetTable
from rmq_broker.topics.table import TopicTable
from rmq_remoting.daemon.config_file import ConfigFile, ConfigFileError, Persistent
from rmq_remoting.errors import BodyError
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock
from tests.support.golden import DATA
from tests.support.rows import each_row

_APACHES = DATA / "protocol" / "config"
_STATES: dict[str, Callable[[], Persistent]] = {
    "topics.json": lambda: TopicTable(broker_settings(), "DefaultCluster", "broker-a", Clock()),
    "subscriptionGroup.json": lambda: SubscriptionGroupTable(broker_settings(), Clock()),
    "consumerOffset.json": lambda: ConsumerOffsetTable(Clock()),
}
_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "blank": lambda content: b" \n\n",
    "torn": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content.rstrip()[:-1],
    "zeros": lambda content: bytes(len(content)),
    "a page of zeros": lambda content: content[: len(content) // 3] + bytes(4096),
    "garbled": lambda content: random.Random(1).randbytes(len(content)),
    "old content behind": lambda content: content + content[-100:],
    "a list": lambda content: b"[]",
    "null": lambda content: b"null",
    "a number": lambda content: b"17",
    "deep": lambda content: b'{"a":' * 100_000,
    "not UTF-8": lambda content: content.replace(b'"', b'"\xff', 5),
}

each_file = each_row("name", _STATES)
each_damage = each_row("damage", _DAMAGES)


def _content(name: str) -> bytes:
    return (_APACHES / name).read_bytes()


def _loaded(path: Path) -> bytes:
    """What the state's owner knows after it read the file; it has to know something by itself."""
    state = _STATES[path.name]()
    assert ConfigFile(path, state).load()
    return state.encode()


def _whole(name: str) -> bytes:
    state = _STATES[name]()
    state.decode(_content(name))
    return state.encode()


@each_file
@each_damage
def test_the_backup_is_used(tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / name
    path.write_bytes(_DAMAGES[damage](_content(name)))
    path.with_name(f"{name}.bak").write_bytes(_content(name))
    with caplog.at_level(logging.WARNING):
        assert _loaded(path) == _whole(name)
    assert f"read from backup backup={name}.bak" in caplog.text and str(path) in caplog.text


@each_file
def test_the_backup_of_a_missing_file_is_used(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.bak").write_bytes(_content(name))
    assert _loaded(tmp_path / name) == _whole(name)


@each_file
@each_damage
def test_a_damaged_backup_beside_a_good_file_is_ignored(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    path.write_bytes(_content(name))
    path.with_name(f"{name}.bak").write_bytes(_DAMAGES[damage](_content(name)))
    assert _loaded(path) == _whole(name)


@each_file
@each_damage
@each_row("has_backup", [True, False])
def test_without_a_readable_file_or_backup_the_start_is_refused(
    tmp_path: Path, name: str, damage: str, has_backup: bool
) -> None:
    """The error names both files, the damage and the remedy; neither the files nor the state change."""
    path, damaged = tmp_path / name, _DAMAGES[damage](_content(name))
    path.write_bytes(damaged)
    if has_backup:
        path.with_name(f"{name}.bak").write_bytes(damaged)
    state = _STATES[name]()
    before = state.encode()
    with pytest.raises(
        ConfigFileError, match=rf"{name} is .*, and .*{name}\.bak is .*Restore one of the two"
    ):
        ConfigFile(path, state).load()
    assert state.encode() == before
    assert path.read_bytes() == damaged


@each_file
def test_a_file_torn_at_any_byte_is_replaced_by_its_backup(name: str) -> None:
    """No beginning of a file is taken for a whole one."""
    content = _content(name).rstrip()
    for length in range(0, len(content), max(1, len(content) // 300)):
        with pytest.raises(BodyError):
            _STATES[name]().decode(content[:length])


@each_file
def test_a_file_with_any_garbled_byte_is_read_or_refused(name: str) -> None:
    """There is no checksum: another digit is another number. But nothing else than BodyError ever comes."""
    content, chance = _content(name), random.Random(2)
    refused = 0
    for _ in range(300):
        garbled = bytearray(content)
        garbled[chance.randrange(len(content))] = chance.randrange(256)
        try:
            _STATES[name]().decode(bytes(garbled))
        except BodyError:
            refused += 1
    assert refused > 100

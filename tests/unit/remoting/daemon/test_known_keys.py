"""Apache's keys from the packages' tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_remoting.daemon.known_keys import NETWORK_TABLE, KnownKey, read_known_keys


def test_a_table_is_read(tmp_path: Path) -> None:
    table = tmp_path / "keys.tsv"
    table.write_text("# First\nint\ta\t1\nString\tb\t\n# Second\nboolean\tc\ttrue\nint\ta\t2\n")
    assert read_known_keys(table) == {
        "a": KnownKey("a", "int", "1", "First"),
        "b": KnownKey("b", "String", "", "First"),
        "c": KnownKey("c", "boolean", "true", "Second"),
    }


def test_the_network_table_is_sound() -> None:
    for key in read_known_keys(NETWORK_TABLE).values():
        assert key.kind in ("int", "long", "boolean", "double", "String"), key
        assert key.default in ("", "cpus") or key.problem_with(key.default) is None, key


@pytest.mark.parametrize(
    ("kind", "value", "fine"),
    [
        ("int", "1", True),
        ("int", "1.5", False),
        ("long", "-3", True),
        ("double", "0.8", True),
        ("double", "x", False),
        ("boolean", "TRUE", True),
        ("boolean", "on", False),
        ("String", "", True),
    ],
)
def test_values_are_validated_by_type(kind: str, value: str, fine: bool) -> None:
    assert (KnownKey("key", kind, "", "Owner").problem_with(value) is None) is fine

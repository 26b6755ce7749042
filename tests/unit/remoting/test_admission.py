"""Bounds of connections: in all, of one host, and by descriptors."""

from __future__ import annotations

import resource

import pytest

from rmq_remoting.admission import Admission, ConnectionLimits
from rmq_remoting.peer_address import host_key


def _admit(admission: Admission, *hosts: str, descriptor: int = 10) -> list[bool]:
    return [not admission.admit((host, 1), descriptor) for host in hosts]


@pytest.fixture(autouse=True)
def a_hundred_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (116, 116))


def test_in_all() -> None:
    admission = Admission(ConnectionLimits(in_all=2))
    assert _admit(admission, "10.0.0.1", "10.0.0.2", "10.0.0.3") == [True, True, False]
    admission.leave(("10.0.0.1", 2))
    assert _admit(admission, "10.0.0.3", "10.0.0.1") == [True, False]


def test_of_one_host() -> None:
    admission = Admission(ConnectionLimits(per_host=2))
    assert _admit(admission, *["10.0.0.1"] * 3, "10.0.0.2") == [True, True, False, True]
    admission.leave(("10.0.0.1", 9))
    assert _admit(admission, *["10.0.0.1"] * 2) == [True, False]


def test_without_a_setting_a_host_may_have_three_quarters() -> None:
    assert _admit(Admission(), *["10.0.0.1"] * 76, "10.0.0.2") == [True] * 75 + [False, True]
    limited = Admission(ConnectionLimits(in_all=40))
    assert _admit(limited, *["10.0.0.1"] * 31) == [True] * 30 + [False]


def test_the_last_descriptors_are_refused() -> None:
    admission = Admission()
    assert _admit(admission, "10.0.0.1", descriptor=99) == [True]
    assert "LimitNOFILE" in admission.admit(("10.0.0.1", 1), 100)


def test_without_a_limit_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert _admit(Admission(), *["10.0.0.1"] * 500, descriptor=10**6) == [True] * 500


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("/run/socket", "/run/socket"),
    ],
)
def test_hosts(host: str, key: str) -> None:
    assert host_key(host) == key

"""Free ports: what one process is given, no other gets."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from rmq_testing import ports
from rmq_testing.ports import LOOPBACK, _Block, free_base, free_broker_port, free_port

_CHOOSE = "from rmq_testing.ports import free_port; print(*[free_port() for _ in range(50)]); input()"


def test_a_port_is_not_given_again_soon() -> None:
    given = [free_port() for _ in range(100)]
    assert len(set(given)) == len(given)


def test_the_ports_of_brokers_do_not_overlap() -> None:
    bases = [free_broker_port() for _ in range(30)]
    given = [base + offset for base in bases for offset in (-2, 0, 1)]
    assert len(set(given)) == len(given)


def test_processes_get_different_ports() -> None:
    command = [sys.executable, "-W", "error", "-c", _CHOOSE]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as one,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as other,
    ):
        assert one.stdout is not None
        assert other.stdout is not None
        given = [*one.stdout.readline().split(), *other.stdout.readline().split()]
        errors = [process.communicate("\n")[1] for process in (one, other)]
    given += [str(free_port()) for _ in range(50)]
    assert len(set(given)) == 150
    assert errors == ["", ""]


def test_a_port_in_use_is_passed_over() -> None:
    base = free_base(range(10))
    with socket.create_server((LOOPBACK, base + 10)):
        assert base + 10 not in [free_port() for _ in range(3)]


def test_more_ports_than_there_are() -> None:
    with pytest.raises(OSError, match="no free ports found in range"):
        free_base(range(1000))


def test_without_a_free_block_the_ports_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_base(range(2))
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 2))
    _Block.take()
    assert _Block.take().free_base((0,)) == first + 1

"""Pauses between attempts that fail."""

from __future__ import annotations

import pytest

from rmq_remoting.backoff import Backoff


def test_pauses_double_up_to_the_bound() -> None:
    backoff = Backoff(0.05, 1.0, lambda: 0.0)
    assert [backoff.pause(failures) for failures in range(1, 8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff.pause(10**9) == 1.0


@pytest.mark.parametrize(("fraction", "seconds"), [(0.0, 8.0), (0.5, 6.0), (1.0, 4.0)])
def test_up_to_half_of_a_pause_is_left_out(fraction: float, seconds: float) -> None:
    assert Backoff(8.0, 8.0, lambda: fraction).pause(1) == seconds


def test_clients_that_failed_together_do_not_try_again_together() -> None:
    pauses = {Backoff(8.0, 8.0).pause(1) for _ in range(20)}
    assert len(pauses) > 1
    assert all(4.0 <= pause <= 8.0 for pause in pauses)

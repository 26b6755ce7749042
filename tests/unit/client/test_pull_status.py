"""Texts of refused offsets."""

from __future__ import annotations

import pytest

from rmq_client.pull_status import moved_text


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (5, "offset was reset on the broker"),
        (0, "offset not on the broker"),
        (11, "offset not on the broker"),
        (None, "offset not on the broker"),
    ],
)
def test_an_offset_within_the_queue_was_reset(offset: int | None, text: str) -> None:
    assert moved_text(offset, 1, 10) == text

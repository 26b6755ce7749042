"""Causes of refusing messages."""

from __future__ import annotations

from rmq_broker.store.write_health import WriteHealth


def test_each_cause_is_removed_by_itself() -> None:
    health = WriteHealth()
    assert health.refusal is None
    health.refuse("disk", "the disk is full")
    health.refuse("queues", "no entries can be written")
    assert health.refusal == "the disk is full"
    health.allow("disk")
    assert health.refusal == "no entries can be written"
    health.allow("disk")
    health.refuse("queues", "still not")
    assert health.refusal == "still not"
    health.allow("queues")
    assert health.refusal is None

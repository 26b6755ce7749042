"""Offset lists in responses to POP."""

from __future__ import annotations

from rmq_broker.pop.answer_infos import AnswerInfos


def test_start_offsets_and_message_offsets() -> None:
    infos = AnswerInfos()
    infos.add("T", 1, 10, (10, 12))
    infos.add("%RETRY%CG+T", 0, 3, (3,))
    assert infos.start_offset_info == "0 1 10;2 0 3"
    assert infos.msg_offset_info == "0 1 10,12;2 0 3"


def test_order_counts_of_one_redelivered_message() -> None:
    infos = AnswerInfos()
    infos.add_counts("T", 1, (10, 12), {10: 2})
    assert infos.order_count_info == "0 qo1%10 2;0 1 0"


def test_order_counts_of_all_messages() -> None:
    infos = AnswerInfos()
    infos.add_counts("T", 1, (10, 12), {10: 2, 12: 1})
    assert infos.order_count_info == "0 qo1%10 2;0 qo1%12 1;0 1 1"

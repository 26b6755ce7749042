"""A send that creates a topic is answered once the topic is on disk and announced."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.sending.created_topics import CreatedTopics
from rmq_remoting.answers import Answer, Result
from tests.support.waiting import loop_passes


class _Steps:
    """Topics and registrar in one: persisting and announcing, which tests complete by hand."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.saving: asyncio.Future[None] = loop.create_future()
        self.announcing: asyncio.Future[None] = loop.create_future()
        self.created = CreatedTopics(self, self)

    @property
    def are_saved(self) -> bool:
        return self.saving.done()

    @property
    def is_announced(self) -> bool:
        return self.announcing.done()

    async def save(self) -> None:
        await asyncio.shield(self.saving)

    async def announced(self) -> bool:
        await asyncio.shield(self.announcing)
        return True


def _waiting(result: Result) -> asyncio.Future[Answer]:
    assert isinstance(result, asyncio.Future)
    return result


@pytest.mark.parametrize("first", ["saving", "announcing"])
async def test_the_answer_waits_for_both(first: str) -> None:
    steps = _Steps()
    answer = _waiting(steps.created.answer_first("T", b"answer"))
    last = steps.announcing if first == "saving" else steps.saving
    getattr(steps, first).set_result(None)
    await loop_passes(10)
    assert not answer.done()
    assert ("T" in steps.created.names) == (last is steps.saving)
    last.set_result(None)
    assert await answer == b"answer"
    assert steps.created.names == set()


async def test_nothing_waits_for_a_topic_that_is_known_and_on_disk() -> None:
    steps = _Steps()
    steps.saving.set_result(None)
    steps.announcing.set_result(None)
    assert steps.created.answer_first("T", b"answer") == b"answer"
    assert steps.created.names == set()


async def test_the_next_send_waits_for_the_disk_alone() -> None:
    steps = _Steps()
    first = _waiting(steps.created.answer_first("T", b"first"))
    following = _waiting(steps.created.answer_next("T", b"second"))
    await loop_passes(10)
    assert not following.done()
    steps.saving.set_result(None)
    assert await following == b"second"
    assert not first.done()
    steps.announcing.set_result(None)
    await first


async def test_a_stored_message_is_acknowledged_although_the_topics_cannot_be_written() -> None:
    steps = _Steps()
    answer = _waiting(steps.created.answer_first("T", b"answer"))
    steps.announcing.set_result(None)
    steps.saving.set_exception(OSError("no space left on device"))
    assert await answer == b"answer"
    assert steps.created.names == set()


@pytest.mark.virtual_time
async def test_a_disk_that_stands_still_holds_a_first_send_for_a_second() -> None:
    steps = _Steps()
    steps.announcing.set_result(None)
    began = asyncio.get_running_loop().time()
    assert await _waiting(steps.created.answer_first("T", b"answer")) == b"answer"
    assert asyncio.get_running_loop().time() - began == pytest.approx(1)

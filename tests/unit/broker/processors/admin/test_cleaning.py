"""Deletion of expired and unused data (codes 306, 316, 329)."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from rmq_broker.processors.admin.cleaning import CleaningProcessor
from rmq_remoting.answers import Result
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.peers import Peer
from tests.unit.broker.processors.parts import answer_of


class Store:
    """Stands for the cleaner and the unused topics, and records the calls."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.may_end = asyncio.Event()
        self.error: OSError | None = None

    def delete_expired(self) -> None:
        self.told.append("files")

    async def clean_queues(self) -> None:
        await self.may_end.wait()
        self.told.append("queues")

    async def delete(self) -> list[str]:
        return await self._delete("all unused")

    async def delete_without_messages(self) -> list[str]:
        return await self._delete("unused without messages")

    async def persist(self) -> None:
        self.told.append("persisted")

    async def _delete(self, which: str) -> list[str]:
        if self.error is not None:
            raise self.error
        self.told.append(which)
        return []


@pytest.fixture
def store() -> Store:
    return Store()


def ask(store: Store, code: RequestCode) -> Result:
    processor = CleaningProcessor(store, store, store.persist)  # type: ignore[arg-type]
    methods = {
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: processor.clean_expired_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: processor.clean_unused_topics,
        RequestCode.DELETE_EXPIRED_COMMITLOG: processor.delete_expired_files,
    }
    return methods[code](Peer().connection, RemotingCommand.request(code))


async def answered(result: Result) -> None:
    answer = await answer_of(result)
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.SUCCESS, None, b"")


async def test_expired_queues_are_cleaned_before_the_response(store: Store) -> None:
    result = ask(store, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    await asyncio.sleep(0)
    assert isinstance(result, asyncio.Future) and not result.done()
    store.may_end.set()
    await answered(result)
    assert store.told == ["queues", "unused without messages", "persisted"]


async def test_unused_topics(store: Store) -> None:
    await answered(ask(store, RequestCode.CLEAN_UNUSED_TOPIC))
    assert store.told == ["all unused", "persisted"]


async def test_files_are_deleted_in_the_background(store: Store) -> None:
    result = ask(store, RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert isinstance(result, RemotingCommand), "answered at once"
    await answered(result)
    assert store.told == ["files"]


@pytest.mark.parametrize("code", [RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC])
async def test_failed_deletion_is_reported(store: Store, code: RequestCode) -> None:
    store.may_end.set()
    store.error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    with pytest.raises(CommandError, match=r"could be deleted \(.*Read-only file system\); try again"):
        await answer_of(ask(store, code))

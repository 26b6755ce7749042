"""Results of listeners, and the hooks around their calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    CallStatus,
    ConsumeHook,
    ConsumeResult,
    HookContext,
    MessageExt,
)
from tests.support.clusters import running_cluster
from tests.support.push_consumers import QUICK, consumer_of, put
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


class _Hook(ConsumeHook):
    """Records its calls."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.seen: list[tuple[CallStatus | None, bool]] = []

    def before(self, context: HookContext) -> None:
        context.notes["mine"] = len(self.begun)
        self.begun += [message.body for message in context.messages]

    def after(self, context: HookContext) -> None:
        assert "mine" in context.notes
        self.seen.append((context.status, context.success))


class _BadHook(ConsumeHook):
    def before(self, context: HookContext) -> None:
        raise RuntimeError("before")

    def after(self, context: HookContext) -> None:
        raise RuntimeError("after")


async def test_none_means_success_or_later(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.broker.put("T", b"x")
        calls: list[int] = []
        hook = _Hook()

        def listen(messages: list[MessageExt]) -> ConsumeResult | None:
            calls.append(messages[0].reconsume_times)
            return None if len(calls) == 1 else ConsumeResult.SUCCESS

        async with consumer_of(cluster, listen, none_means=ConsumeResult.LATER, hooks=[hook]):
            await until(lambda: len(calls) == 2)
        assert calls == [0, 1]
        assert hook.seen == [(CallStatus.RETURNNULL, False), (CallStatus.SUCCESS, True)]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
async def test_hooks_see_every_call(kind: str, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 3, queues=1)
        hook = _Hook()

        def judge(messages: list[MessageExt]) -> ConsumeResult:
            if messages[0].reconsume_times:
                return ConsumeResult.SUCCESS
            if messages[0].body == b"001":
                raise RuntimeError("no")
            return ConsumeResult.LATER if messages[0].body == b"002" else ConsumeResult.SUCCESS

        async def judge_later(messages: list[MessageExt]) -> ConsumeResult:
            return judge(messages)

        listener = judge if kind == "function" else judge_later
        async with consumer_of(cluster, listener, workers=1, hooks=[_BadHook(), hook]):
            await until(lambda: len(hook.seen) == 5)
        assert hook.seen[:3] == [
            (CallStatus.SUCCESS, True),
            (CallStatus.EXCEPTION, False),
            (CallStatus.FAILED, False),
        ]
        assert "consume hook failed before the listener" in caplog.text


async def test_a_timed_out_message_is_sent_back_and_its_result_ignored(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        put(cluster, 2, queues=1)
        release = asyncio.Event()
        calls: list[tuple[bytes, int]] = []
        hook = _Hook()

        async def listen(messages: list[MessageExt]) -> ConsumeResult:
            calls.append((messages[0].body, messages[0].reconsume_times))
            if calls[-1] == (b"000", 0):
                await release.wait()
                return ConsumeResult.LATER
            return ConsumeResult.SUCCESS

        timing = replace(QUICK, consume_timeout_seconds=0.1)
        async with consumer_of(cluster, listen, timing=timing, hooks=[hook]):
            await until(lambda: (b"000", 1) in calls)
            await until(lambda: cluster.broker.committed() == 2)
            release.set()
            await until(lambda: len(hook.seen) == 3)
        assert [header.delay_level for header in cluster.broker.sent_back] == [3]
        assert hook.seen[-1] == (CallStatus.TIME_OUT, False)


async def test_invalid_listener_results_are_refused(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.broker.put("T", b"x")
        answers: list[Any] = [True, asyncio.sleep(0), None]

        def listen(messages: list[MessageExt]) -> Any:
            return answers.pop(0)

        async with consumer_of(cluster, listen):
            await until(lambda: not answers)
        assert cluster.broker.committed() == 1
        assert "must return None or a ConsumeResult, not True" in caplog.text
        assert "define it with `async def`" in caplog.text

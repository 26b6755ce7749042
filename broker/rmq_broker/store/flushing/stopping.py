"""The end of group commit: a coroutine, so it is not in `group_commit`, which is compiled."""

from __future__ import annotations

import asyncio
from typing import Final

from .group_commit import GroupCommit

_CLOSE_SECONDS: Final = 10.0


async def stop_commits(commits: GroupCommit) -> None:
    """Flush a last time, call all listeners, end the thread."""
    commits.begin_stop()
    await asyncio.get_running_loop().run_in_executor(None, commits.join, _CLOSE_SECONDS)
    await asyncio.sleep(0)  # the results that the thread sent last
    commits.close()

"""The proxy's remoting port answers as Apache's proxy does, except for the differences listed here.

`tests/data/remoting_port_answers.json` has the answers of Apache's proxy in front of Apache's broker.
docs/compatibility.md explains the differences. `python -m tests.interop.test_remoting_port_answers` records the
answers again; it needs a JDK and Maven.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from tests.support import toolchain
from tests.support.apache import apache_cluster
from tests.support.apache_proxy import ApacheProxy
from tests.support.clusters import running_cluster
from tests.support.golden import DATA, json_file
from tests.support.remoting_port_requests import BROKER, Answer, Transcript, transcribe
from tests.support.requirements import built_or_skip
from tests.support.running_proxy import remoting_port, running_proxy

_FILE: Final = "remoting_port_answers.json"


async def _of_apaches() -> Transcript:
    servers, program = built_or_skip(toolchain.apache_servers), built_or_skip(toolchain.apache_proxy)
    settings = {"recallMessageEnable": "true", "brokerName": BROKER, "autoCreateTopicEnable": "false"}
    async with (
        apache_cluster(servers, settings) as (namesrv, _),
        ApacheProxy(program, namesrv.address) as proxy,
    ):
        return await transcribe(int(proxy.remoting_address.rpartition(":")[2]), namesrv.address)


async def _of_ours(folder: Path) -> Transcript:
    async with (
        running_cluster(folder, {BROKER: {}}, recallMessageEnable="true") as cluster,
        running_proxy(cluster.address) as proxy,
    ):
        return await transcribe(remoting_port(proxy), cluster.address)


def _write(transcript: Transcript, path: Path) -> None:
    lines = [
        f"{json.dumps(name)}: {json.dumps(answer, ensure_ascii=False, sort_keys=True)}"
        for name, answer in transcript.items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _write(asyncio.run(_of_apaches()), DATA / _FILE)

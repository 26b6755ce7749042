"""The proxy's remoting port answers as Apache's proxy does, except for the differences listed here.

`tests/data/remoting_port_answers.json` has the answers of Apache's proxy in front of Apache's broker.
docs/compatibility.md explains the differences. `python -m tests.interop.test_remoting_port_answers` records
the answers again; it needs a JDK and Maven.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from rmq_remoting.codes import ResponseCode as Code
from tests.support import toolchain
from tests.support.apache import apache_cluster
from tests.support.apache_proxy import ApacheProxy
from tests.support.clusters import running_cluster
from tests.support.golden import DATA, json_file
from tests.support.remoting_port_requests import BROKER, Answer, Transcript, transcribe
from tests.support.requirements import built_or_skip
from tests.support.running_proxy import remoting_port, running_proxy

_FILE: Final = "remoting_port_answers.json"

# Our codes where they differ from Apache's.
_OUR_CODES: Final = {
    # Apache's proxy answers TOPIC_NOT_EXIST, with another number than the request's.
    "send, unknown broker": Code.SERVICE_NOT_AVAILABLE,
    "maximum offset, unknown broker": Code.SERVICE_NOT_AVAILABLE,
    "lock, unknown broker": Code.SERVICE_NOT_AVAILABLE,
    # Apache's broker fails with a NullPointerException.
    "send without a body": Code.MESSAGE_ILLEGAL,
    "pull without a subscription": Code.SUBSCRIPTION_NOT_EXIST,
    # Apache's proxy checks no filter.
    "check of a wrong filter": Code.SYSTEM_ERROR,
    "lock of nothing": Code.SUCCESS,
    "unlock of nothing": Code.SUCCESS,
    # Apache's proxy reads a pop as a pull, and fails.
    "pop": Code.SUCCESS,
    "pop of nothing": Code.POLLING_TIMEOUT,
    "pop without a broker": Code.VERSION_NOT_SUPPORTED,
    "pop, unknown topic": Code.TOPIC_NOT_EXIST,
    # Apache's proxy does not answer these.
    "ack": Code.SUCCESS,
    "ack without a broker": Code.VERSION_NOT_SUPPORTED,
    "ack of no receipt": Code.MESSAGE_ILLEGAL,
    "change of an invisible time": Code.SUCCESS,
    # Apache's proxy does not support these.
    "assignment": Code.SUCCESS,
    "batch of acknowledgements": Code.SUCCESS,
    "notification": Code.SUCCESS,
    # Apache's proxy tells the broker by a one-way request.
    "end of an unknown transaction": Code.SYSTEM_ERROR,
}
# Apache's proxy adds both to each answer, and hides those of the broker.
_ADDED: Final = ("MSG_REGION", "TRACE_ON")


async def test_ours_answers_as_apaches(tmp_path: Path) -> None:
    apaches: Transcript = json_file(_FILE)
    ours = await _of_ours(tmp_path)
    assert ours.keys() == apaches.keys()
    different = {name: ours[name]["code"] for name in ours if ours[name]["code"] != apaches[name].get("code")}
    assert different == _OUR_CODES
    for name, answer in ours.items():
        assert "answer" not in answer, name
        if name not in different:
            assert _content(answer) == _content(apaches[name]), name


def test_only_listed_requests_have_no_answer_of_apaches_proxy() -> None:
    apaches: Transcript = json_file(_FILE)
    odd = {name: answer["answer"] for name, answer in apaches.items() if "answer" in answer}
    assert odd.keys() < _OUR_CODES.keys()
    assert set(odd.values()) == {"none", "with another number"}


@pytest.mark.long
@pytest.mark.java
@pytest.mark.timeout(300)
async def test_the_recorded_answers_are_apaches() -> None:
    assert await _of_apaches() == json_file(_FILE)


def _content(answer: Answer) -> Answer:
    """Return an answer to compare: without the text, which we word ourselves."""
    fields = {name: value for name, value in answer["fields"].items() if name not in _ADDED}
    return {"code": answer["code"], "body": answer["body"], "fields": fields}


async def _of_apaches() -> Transcript:
    servers, program = built_or_skip(toolchain.apache_servers), built_or_skip(toolchain.apache_proxy)
    settings = {"recallMessageEnable": "true", "brokerName": BROKER, "autoCreateTopicEnable": "false"}
    async with (
        apache_cluster(servers, settings) as (namesrv, broker),
        ApacheProxy(program, namesrv.address) as proxy,
    ):
        return await transcribe(int(proxy.remoting_address.rpartition(":")[2]), namesrv.address, broker.port)


async def _of_ours(folder: Path) -> Transcript:
    async with (
        running_cluster(folder, {BROKER: {}}, recallMessageEnable="true") as cluster,
        running_proxy(cluster.address) as proxy,
    ):
        return await transcribe(remoting_port(proxy), cluster.address, cluster.broker.port)


def _write(transcript: Transcript, path: Path) -> None:
    lines = [
        f"{json.dumps(name)}: {json.dumps(answer, ensure_ascii=False, sort_keys=True)}"
        for name, answer in transcript.items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _write(asyncio.run(_of_apaches()), DATA / _FILE)

"""The page on compatibility: its list of missing requests is true, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from rmq_broker.build import build_dispatcher
from rmq_namesrv.config import NamesrvSettings
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.daemon.configuration import load
from tests.support.brokers import broker_configuration

_PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"

# Requests that servers send to clients.
_TO_CLIENTS = {
    Code.CHECK_TRANSACTION_STATE,
    Code.NOTIFY_CONSUMER_IDS_CHANGED,
    Code.RESET_CONSUMER_CLIENT_OFFSET,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
}


def _listed(text: str) -> set[tuple[int, str]]:
    """Number and name of each request code in a text."""
    return {(int(number), name) for number, name in re.findall(r"\b(\d+)\s([A-Z][A-Z0-9_]{5,})\b", text)}


async def test_requests_without_a_processor_are_listed(tmp_path: Path) -> None:
    broker = await build_dispatcher(broker_configuration(tmp_path))
    namesrv = Namesrv(load(NamesrvSettings)).dispatcher
    processed = {row.code for row in (*broker.registrations(), *namesrv.registrations())}
    missing = {(code.value, code.name) for code in Code if code not in processed | _TO_CLIENTS}
    section = _PAGE.read_text().partition("### Request codes without a processor\n")[2].partition("\n## ")[0]
    assert _listed(section) == missing


def test_every_section_is_in_the_contents() -> None:
    text = _PAGE.read_text()
    contents, _, rest = text.partition("\n## ")
    headings = re.findall(r"^##+ (.*)$", f"## {rest}", re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert sorted(re.findall(r"\]\(#([^)]+)\)", contents)) == sorted(anchors)
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= set(anchors)


def test_lines_outside_of_tables_are_shorter_than_120_characters() -> None:
    lines = _PAGE.read_text().splitlines()
    assert [line for line in lines if len(line) > 119 and not line.startswith("|")] == []

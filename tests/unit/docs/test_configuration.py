"""The pages that are written from the settings and options themselves."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmq_broker
import rmq_namesrv
import rmq_remoting
from rmq_broker.settings.broker import BrokerSettings
from rmq_namesrv.config import NamesrvSettings
from rmq_remoting.daemon.settings import SettingsGroup, describe_settings

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("script", "page"),
    [("make_configuration.py", "configuration.md"), ("make_spark_options.py", "spark_options.md")],
)
def test_the_page_is_what_its_script_writes(script: str, page: str) -> None:
    written = runpy.run_path(str(DOCS / script))["page"]
    assert (DOCS / page).read_text() == written(), f"run: python docs/{script}"


def _attributes_read() -> Iterator[str]:
    """Iterate over the names of all attributes that the daemons read."""
    for package in (rmq_remoting, rmq_namesrv, rmq_broker):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    yield node.attr


@pytest.mark.parametrize("model", [BrokerSettings, NamesrvSettings])
def test_a_setting_without_effect_says_so(model: type[SettingsGroup]) -> None:
    read = set(_attributes_read())
    silent = [
        info.key
        for info in describe_settings(model)
        if info.name not in read and "no effect" not in info.meaning.lower()
    ]
    assert silent == []

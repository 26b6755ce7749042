"""The pages that are generated: from settings, options, metrics and command lines."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import rmq_broker
import rmq_namesrv
import rmq_remoting
from rmq_broker.settings.broker import BrokerSettings
from rmq_namesrv.config import NamesrvSettings
from rmq_remoting.daemon.settings import SettingsGroup, describe_settings

DOCS = Path(__file__).parents[3] / "docs"
_METRIC = re.compile(r"(rocketmq|rmq|process|python)_[a-z0-9_]*[a-z0-9]")
# Names of files and of a system topic.
_NO_METRICS = {"rmq_boot_id", "rmq_checkpoint", "rmq_next", "rmq_sys_wheel_timer"}


@pytest.mark.parametrize(
    ("script", "page"),
    [
        ("make_commands.py", "commands.md"),
        ("make_configuration.py", "configuration.md"),
        ("make_metrics.py", "metrics.md"),
        ("make_rmq_commands.py", "rmq_commands.md"),
        ("make_spark_options.py", "spark_options.md"),
    ],
)
def test_the_page_is_what_its_script_writes(script: str, page: str) -> None:
    written = runpy.run_path(str(DOCS / script))["page"]
    assert (DOCS / page).read_text() == written(), f"run: python docs/{script}"


@cache
def _nodes() -> list[ast.AST]:
    """Return the attributes and constants in the daemons' code."""
    packages = [Path(str(package.__file__)).parent for package in (rmq_remoting, rmq_namesrv, rmq_broker)]
    trees = [ast.parse(path.read_text()) for package in packages for path in package.rglob("*.py")]
    return [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Constant)
    ]


def _names_of_metrics() -> Iterator[str]:
    """Iterate over the constants in the daemons' code that look like the names of metrics."""
    for node in _nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _METRIC.fullmatch(node.value):
            yield node.value


def test_the_page_of_metrics_is_complete() -> None:
    text = (DOCS / "metrics.md").read_text()
    missing = {name for name in _names_of_metrics() if f"`{name}`" not in text}
    assert missing - _NO_METRICS == set()


def _attributes_read() -> Iterator[str]:
    """Iterate over the names of all attributes that the daemons read."""
    for node in _nodes():
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

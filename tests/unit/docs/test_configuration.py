"""The pages that are generated: from settings, options, metrics and command lines."""

from __future__ import annotations

import ast
import re
import runpy
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
_NO_METRICS = {"rmq_boot_id", "rmq_checkpoint", "rmq_compiled_form", "rmq_next", "rmq_sys_wheel_timer"}


@pytest.mark.parametrize(
    ("script", "page"),
    [
        ("make_commands.py", "commands.md"),
        ("make_configuration.py", "configuration.md"),
        ("make_metrics.py", "metrics.md"),
        ("make_rmq_commands.py", "rmq_commands.md"),
    ],
)
def test_the_page_is_what_its_script_writes(script: str, page: str) -> None:
    written = runpy.run_path(str(DOCS / script))["page"]
    assert (DOCS / page).read_text() == written(), f"run: python docs/{script}"


@cache
def _of_daemons() -> tuple[set[str], set[str]]:
    """Return the constants in the daemons' code that look like metrics, and the attributes it reads."""
    metrics, read = set(), set()
    for package in (rmq_remoting, rmq_namesrv, rmq_broker):
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant):
                    if isinstance(node.value, str) and _METRIC.fullmatch(node.value):
                        metrics.add(node.value)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    read.add(node.attr)
    return metrics, read


def test_the_page_of_metrics_is_complete() -> None:
    text = (DOCS / "metrics.md").read_text()
    metrics, _ = _of_daemons()
    missing = {name for name in metrics if f"`{name}`" not in text}
    assert missing - _NO_METRICS == set()


@pytest.mark.parametrize("model", [BrokerSettings, NamesrvSettings])
def test_a_setting_without_effect_says_so(model: type[SettingsGroup]) -> None:
    _, read = _of_daemons()
    silent = [
        info.key
        for info in describe_settings(model)
        if info.name not in read and "no effect" not in info.meaning.lower()
    ]
    assert silent == []

"""What `import rmq_client` gives: names, types, help, loggers; also without fork and uvloop."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import concurrent.futures
import contextlib
import inspect
import logging
import os
import pydoc
import re
import subprocess
import sys
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, Final

import pytest

import rmq_client
from rmq_client import blocking

_ROOT: Final = Path(__file__).parents[3]
_KNOWN: Final = {
    name
    for module in (builtins, typing, types, collections.abc, concurrent.futures, contextlib)
    for name in dir(module)
} | {"datetime", "timedelta", "Path", "ssl", "os", "asyncio", "P", "T", "Self"}
_PRIVATE_PREFIX: Final = "_"


def _annotations(function: Any) -> set[str]:
    """Return the names that the annotations of a function use."""
    texts = [str(text) for text in getattr(function, "__annotations__", {}).values()]
    return {
        node.id
        for text in texts
        if isinstance(text, str)
        for node in ast.walk(ast.parse(text.strip("'\""), mode="eval"))
        if isinstance(node, ast.Name)
    }


def _public_functions() -> list[tuple[str, Any]]:
    found = []
    for name in rmq_client.__all__:
        value = getattr(rmq_client, name)
        if inspect.isfunction(value):
            found.append((name, value))
        elif inspect.isclass(value) and value.__module__.startswith("rmq_client"):
            found += [
                (f"{name}.{member}", function)
                for member, function in inspect.getmembers(value, inspect.isfunction)
                if member == "__init__" or not member.startswith(_PRIVATE_PREFIX)
            ]
    return found


# Called by the SDK itself.
_INTERNAL: Final = frozenset(
    {
        "Credentials.signer",
        "DeduplicatedListener.__init__",
        "Transaction.__init__",
        "TopicRoute.__init__",
        "TopicRoute.same_as",
    }
)


def test_every_type_of_a_public_signature_is_exported() -> None:
    missing = {
        f"{name}: {used}"
        for name, function in _public_functions()
        if name not in _INTERNAL
        for used in _annotations(function)
        if used not in _KNOWN and used not in rmq_client.__all__ and not used.startswith(_PRIVATE_PREFIX)
    }
    assert not missing


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert rmq_client.__version__ == project["version"]


@pytest.mark.parametrize("kind", [rmq_client.Producer, blocking.Producer, rmq_client.PushConsumer])
def test_help_shows_parameters_and_calls(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    assert "timeout_seconds" in text or "listener" in text
    assert not re.search(r"object at 0x", text), "a default is shown as an address"
    # Since Python 3.14 the type is shown without quotes.
    assert re.search(r"settings: '?ClientSettings'? = ClientSettings\(\)", text), (
        "only changed settings are shown"
    )


@pytest.mark.parametrize("module", ["rmq_client", "rmq_remoting"])
def test_nothing_is_printed_without_a_configuration_of_logs(module: str) -> None:
    handlers = logging.getLogger(module).handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


def test_loggers_are_named_by_module() -> None:
    for folder in ("client/rmq_client", "spark_connector/pyspark_rocketmq"):
        for path in (_ROOT / folder).rglob("*.py"):
            for name in re.findall(r"getLogger\((.+?)\)", path.read_text()):
                assert name in ("__name__", "_name"), f"{path}: getLogger({name})"


_WITHOUT_FORK: Final = """
import os, sys
del os.fork, os.register_at_fork, os.forkpty
for name in ("uvloop", "fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None  # its import fails
import asyncio
import rmq_client, rmq_client.blocking
from rmq_client.loop_thread import LoopThread
thread = LoopThread("test")
assert type(thread.loop()).__module__.startswith("asyncio"), type(thread.loop())
asyncio.run(thread.stop())
producer = rmq_client.blocking.Producer("127.0.0.1:1", group="g")
try:
    producer.send(rmq_client.Message("T", b"x"))
except rmq_client.NotRunning:
    print("refused")
"""


_FORGOTTEN: Final = """
import asyncio
import rmq_client
producer = rmq_client.Producer("127.0.0.1:1", group="g")
asyncio.run(producer.start())
"""


def _run(program: str, warnings: str) -> tuple[str, str]:
    """Return what a program prints to its standard output and to its standard error."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-W", warnings, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    return done.stdout, done.stderr


def test_platforms_without_fork_and_uvloop() -> None:
    assert _run(_WITHOUT_FORK, "error") == ("refused\n", "")


def test_the_end_of_a_process_reports_what_was_not_stopped() -> None:
    _, errors = _run(_FORGOTTEN, "default")
    assert "ResourceWarning: producers, consumers and Admins of 127.0.0.1:1 that were not stopped" in errors

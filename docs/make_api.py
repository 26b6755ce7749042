"""Write docs/api/, the lists of names whose docstrings the site shows: `python docs/make_api.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).with_name("api")
_PACKAGE: Final = "rmq_client"
_ROOT: Final = Path(__file__).parents[1]
_INIT: Final = _ROOT / "client" / _PACKAGE / "__init__.py"
_HEAD: Final = """\
# Python API

Every public name of `rmq_client`, `rmq_testing` and `rmq_faststream`, with the docstrings of the code. The
site shows a docstring where a page in `docs/api` has a line that begins with `:::`.

| page | names |
|---|---|
"""
_FOOT: Final = """\

[The reference of the SDK](../client/reference.md) has parameters and defaults as tables.

These pages are written by `python docs/make_api.py`.
"""


@dataclass(frozen=True, slots=True)
class ApiPage:
    """A page: file, title, introduction, the modules whose names it has, the names that come first."""

    file: str
    title: str
    text: str
    modules: tuple[str, ...]
    first: tuple[str, ...] = ()
    inherited: bool = True  # whether classes show the members of their bases


# The first page with a prefix of a name's module has the name.
_PAGES: Final = (
    ApiPage(
        "producer.md",
        "Producer",
        "Sending, its policies and its results. Guides: [send messages reliably](../client/how-to-send.md),\n"
        "[send many messages](../client/how-to-send-many.md),\n"
        "[transactions](../client/how-to-transactions.md).",
        (
            "rmq_client.producer",
            "rmq_client.replies",
            "rmq_client.results",
            "rmq_client.transactions",
            "rmq_remoting.compression",
        ),
        ("Producer", "SendResult", "SendStatus"),
    ),
    ApiPage(
        "bodies.md",
        "Bodies",
        "Serializers, and listeners that get bodies as values. Guide: [send and consume\n"
        "values](../client/how-to-serialize-bodies.md).",
        ("rmq_client.bodies", "rmq_client.consumer.processing.body_listener"),
        ("body_listener", "Serializer"),
    ),
    ApiPage(
        "deduplication.md",
        "Deduplication",
        "Messages that are delivered more than once, and processed once. Guide: [skip\n"
        "duplicates](../client/how-to-deduplicate.md).",
        ("rmq_client.consumer.deduplication",),
        ("Deduplicator",),
    ),
    ApiPage(
        "rebalancing.md",
        "Division of queues",
        "Strategies by which the members of a group divide the queues of a topic, and their listeners.\n"
        "Guides: [divide the queues differently](../client/how-to-push.md#divide-the-queues-differently),\n"
        "[learn of changed queues](../client/how-to-watch-lag.md#learn-of-changed-queues).",
        ("rmq_client.consumer.rebalancing",),
    ),
    ApiPage(
        "consumers.md",
        "Consumers",
        "The three kinds of consumers, and their settings. Guides: [push](../client/how-to-push.md),\n"
        "[simple](../client/how-to-simple.md) and [pull](../client/how-to-pull.md) consumers.",
        ("rmq_client.consumer",),
        ("PushConsumer", "SimpleConsumer", "PullConsumer"),
    ),
    ApiPage(
        "messages.md",
        "Messages",
        "A producer sends a `Message`. A consumer receives a `MessageExt`.",
        ("rmq_remoting.message", "rmq_remoting.message_queue"),
    ),
    ApiPage(
        "admin.md",
        "Admin",
        "Topics, groups, offsets and queries. Guide: [administer topics, messages and\n"
        "groups](../client/how-to-administer.md).",
        ("rmq_client.admin", "rmq_client.message_queries", "rmq_client.network", "rmq_remoting.bodies"),
        ("Admin",),
    ),
    ApiPage(
        "settings.md",
        "Settings of clients",
        "Settings that all objects take by `settings=`. Guides: [access keys and\n"
        "TLS](../client/how-to-secure-connections.md), [namespaces](../client/how-to-namespaces.md).",
        (
            "rmq_client.checks",
            "rmq_client.credentials",
            "rmq_client.settings",
            "rmq_client.tls",
            "rmq_remoting.command",
            "rmq_remoting.connection",
        ),
        ("ClientSettings",),
    ),
    ApiPage(
        "hooks.md",
        "Hooks and traces",
        "Code of the application around sends, receptions, calls of the listener and settlements, and\n"
        "traces of messages. Guides: [trace messages](../client/how-to-trace.md), [watch a\n"
        "consumer](../client/how-to-push.md#watch-a-consumer).",
        ("rmq_client.hooks", "rmq_client.trace"),
        ("SendHook", "ConsumeHook", "Tracing"),
    ),
    ApiPage(
        "raw.md",
        "Undecoded pulls",
        "Reading of queues as bytes, for programs that decode messages themselves.",
        ("rmq_client.pull_status", "rmq_client.raw_pulls"),
        ("RawPuller",),
    ),
    ApiPage(
        "errors.md",
        "Errors",
        "All errors of the SDK. [The table of errors](../client/reference.md#errors) tells them apart.",
        ("rmq_client.errors", "rmq_remoting.message_errors"),
        ("ClientError", "UsageError"),
        inherited=False,
    ),
)
_OPEN_TELEMETRY: Final = """\
# OpenTelemetry

`rmq_client.open_telemetry` records spans and metrics of producers and consumers. Guide: [record
OpenTelemetry spans and metrics](../client/how-to-open-telemetry.md).

::: rmq_client.open_telemetry.instrument

::: rmq_client.open_telemetry.OpenTelemetry
"""
_NOT_INHERITED: Final = "    options:\n      inherited_members: false\n"
_BLOCKING: Final = """\
# Without asyncio

`rmq_client.blocking` has the same classes for programs without an event loop. Their constructors and methods
are those of the asyncio classes, without `await`. Guide: [the SDK without
asyncio](../client/how-to-blocking.md).
"""
_TESTING: Final = """\
# Tests of applications

`rmq_testing` is a broker for tests, with fixtures for pytest. `rmq_testing.blocking` has the same
`BrokerForTests` for programs without an event loop. Guide: [test your own code](../testing.md).

`BrokerForTests` has the methods of `BrokerView`, and of `Harness` those that `BrokerView` lacks.
"""
_TESTING_MODULES: Final = ("view.BrokerView", "harness.Harness", "plugin")
_FASTSTREAM: Final = """\
# FastStream

`rmq_faststream` is a broker for FastStream. Its classes have methods of FastStream's own, which [its
documentation](https://faststream.ag2.ai) describes. Guide: [use
FastStream](../frameworks/how-to-faststream.md).
"""
_FASTSTREAM_MODULES: Final = (
    *("message.RocketMessage", "message.RocketBatchMessage"),
    *("annotations", "opentelemetry", "prometheus"),
)
# Names that have a page of their own package.
_ELSEWHERE: Final = frozenset({"RequestCode", "ResponseCode", "RocketMessage", "Sql"})


def pages() -> dict[str, str]:
    """Return the text of each page by its file. Raises LookupError for a name that no page has."""
    names: dict[str, list[str]] = {page.file: list(page.first) for page in _PAGES}
    for name, module in _public_names():
        found = names[_page_of(name, module).file]
        if name not in found:
            found.append(name)
    texts = {page.file: _text(page, names[page.file]) for page in _PAGES}
    rows = [f"| [{page.title}]({page.file}) | {_code(names[page.file])} |\n" for page in _PAGES]
    rows.append("| [OpenTelemetry](open_telemetry.md) | `rmq_client.open_telemetry` |\n")
    rows.append("| [Without asyncio](blocking.md) | `rmq_client.blocking` |\n")
    blocking = _names_of("client/rmq_client/blocking")
    testing, faststream = _names_of("testing/rmq_testing"), _names_of("faststream_broker/rmq_faststream")
    rows.append(f"| [Tests of applications](testing.md) | {_code(testing)} |\n")
    rows.append(f"| [FastStream](faststream.md) | {_code(faststream)} |\n")
    manual = {
        "open_telemetry.md": _OPEN_TELEMETRY,
        "blocking.md": _BLOCKING + _directives("rmq_client.blocking", blocking),
        "testing.md": _TESTING + _directives("rmq_testing", [*testing, *_TESTING_MODULES]),
        "faststream.md": _FASTSTREAM + _directives("rmq_faststream", [*faststream, *_FASTSTREAM_MODULES]),
    }
    return {"README.md": _HEAD + "".join(rows) + _FOOT, **texts, **manual}


def _text(page: ApiPage, names: list[str]) -> str:
    options = "" if page.inherited else _NOT_INHERITED
    return f"# {page.title}\n\n{page.text}\n{_directives(_PACKAGE, names, options)}"


def _directives(package: str, names: list[str], options: str = "") -> str:
    return "".join(f"\n::: {package}.{name}\n{options}" for name in names)


def _names_of(folder: str) -> list[str]:
    """Return the names in `__all__` of a small package."""
    tree = ast.parse((_ROOT / folder / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if name not in _ELSEWHERE]
    raise LookupError(f"{folder} has no __all__")


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _page_of(name: str, module: str) -> ApiPage:
    for page in _PAGES:
        if any(module == prefix or module.startswith(f"{prefix}.") for prefix in page.modules):
            return page
    raise LookupError(f"{name} of {module} is on no page: add the module to one of _PAGES in {__file__}")


def _public_names() -> Iterator[tuple[str, str]]:
    """Yield the public names of the package and the modules that they are imported from."""
    for node in ast.walk(ast.parse(_INIT.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = f"{_PACKAGE}.{node.module}" if node.level else node.module
            if module.startswith("rmq_"):
                yield from ((alias.asname or alias.name, module) for alias in node.names)


if __name__ == "__main__":
    for _file, _written in pages().items():
        (_FOLDER / _file).write_text(_written)

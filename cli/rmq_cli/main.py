"""The command `rmq`."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from .commands import (
    acl,
    bench,
    broker,
    cluster,
    cold,
    config,
    dlq,
    group,
    message,
    namesrv,
    offset,
    static_topic,
    topic,
    trace,
    transaction,
    user,
)
from .commands.consume import add_consume
from .commands.export import add_export
from .commands.lag import add_lag
from .commands.produce import add_produce
from .declaring import take_options_before_commands

_ABOUT = (
    "Administer RocketMQ clusters, send and read messages, and see how far consumers are.\n\n"
    "Commands find the cluster by --namesrv, by NAMESRV_ADDR, or by a profile (rmq config set). They work "
    "with brokers of this project and with Apache's.\n\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 no answer, 5 refused, 6 a condition is not "
    "met, 7 exists already."
)

app = typer.Typer(
    name="rmq",
    help=_ABOUT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _group in (
    ("topic", topic.app),
    ("static-topic", static_topic.app),
    ("group", group.app),
    ("offset", offset.app),
    ("message", message.app),
    ("dlq", dlq.app),
    ("transaction", transaction.app),
    ("trace", trace.app),
    ("broker", broker.app),
    ("cold", cold.app),
    ("cluster", cluster.app),
    ("namesrv", namesrv.app),
    ("user", user.app),
    ("acl", acl.app),
    ("config", config.app),
    ("bench", bench.app),
):
    app.add_typer(_group, name=_name)
add_export(message.app)
add_produce(app)
add_consume(app)
add_lag(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rmq {installed_version('rmq')}")
        raise typer.Exit


_VERSION = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
]
take_options_before_commands(app, version=_VERSION)


def main() -> None:
    """Run the command line."""
    app()

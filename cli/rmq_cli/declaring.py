"""Declaration of commands: each is a function of a session and of its own options.

All commands also have the options of the connection and of the output, so that these may stand at the end
of a line, where people add them. The root takes them as well, before the command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from .output import Format
from .session import Options, running

_CONNECTION: Final = "Connection"
_OUTPUT: Final = "Output"
_SAFETY: Final = "Safety"


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _text_option(name: str, flags: tuple[str, ...], about: str) -> inspect.Parameter:
    option = typer.Option(*flags, help=about, rich_help_panel=_CONNECTION)
    return _parameter(name, Annotated[str | None, option])


_COMMON: Final = (
    _text_option("namesrv", ("--namesrv", "-n"), "Name servers, HOST:PORT;HOST:PORT (or NAMESRV_ADDR)."),
    _text_option("profile", ("--profile", "-P"), "Profile of the configuration file (or RMQ_PROFILE)."),
    _text_option("access_key", ("--access-key",), "Access key: the user (or RMQ_ACCESS_KEY)."),
    _text_option(
        "secret_key",
        ("--secret-key",),
        "Secret key; other users can see it here: better by a profile or RMQ_SECRET_KEY.",
    ),
    _parameter(
        "tls",
        Annotated[
            bool | None,
            typer.Option("--tls/--no-tls", help="Encrypt the connections.", rich_help_panel=_CONNECTION),
        ],
    ),
    _text_option("tls_ca", ("--tls-ca",), "File of certificates to trust; implies --tls."),
    _text_option(
        "tls_verify", ("--tls-verify",), "What to verify: full, certificate or none; implies --tls."
    ),
    _text_option("namespace", ("--namespace",), "Namespace of topics and groups."),
    _parameter(
        "timeout",
        Annotated[
            float | None,
            typer.Option(min=0.001, help="Seconds to wait for an answer.", rich_help_panel=_CONNECTION),
        ],
    ),
    _parameter(
        "output",
        Annotated[
            Format | None,
            typer.Option("--output", "-o", help="Form of the output.", rich_help_panel=_OUTPUT),
        ],
    ),
)
_CONTEXT: Final = inspect.Parameter(
    "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
)
_DRY_RUN: Final = _parameter(
    "dry_run",
    Annotated[
        bool,
        typer.Option("--dry-run", help="Tell what would change; change nothing.", rich_help_panel=_SAFETY),
    ],
    False,
)
_YES: Final = _parameter(
    "yes",
    Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", rich_help_panel=_SAFETY)],
    False,
)


def take_options_before_commands(app: typer.Typer, **own: Any) -> None:
    """Let the root take the common options, too: `rmq -n HOST:9876 lag`. Those of the command count first.

    `own` are annotations of options of the root alone, which act by callbacks.
    """
    parameters = [*_COMMON, *(_parameter(name, annotation, False) for name, annotation in own.items())]

    def root(context: typer.Context, **arguments: Any) -> None:
        context.obj = {each.name: arguments[each.name] for each in _COMMON}

    root.__signature__ = inspect.Signature([_CONTEXT, *parameters])  # type: ignore[attr-defined]
    root.__annotations__ = {each.name: each.annotation for each in (_CONTEXT, *parameters)}
    app.callback()(root)


def command_group(about: str) -> typer.Typer:
    """Return a group of commands, such as `rmq topic`."""
    return typer.Typer(help=about, no_args_is_help=True)


def command(
    app: typer.Typer,
    name: str,
    *examples: str,
    changes: bool = False,
    destroys: bool = False,
    local: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a command. Its function takes a session and the command's own options.

    `examples` are shown in --help. `changes` adds --dry-run, `destroys` also --yes. `local` is for commands
    that need no cluster. The first line of the docstring is the text in lists.
    """
    common = _COMMON[-1:] if local else _COMMON
    added = (*common, *((_DRY_RUN,) if changes or destroys else ()), *((_YES,) if destroys else ()))

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        parameters += added

        @functools.wraps(function)
        def run(context: typer.Context, **arguments: Any) -> None:
            given = {each.name: arguments.pop(each.name) for each in added}
            before = context.find_root().obj or {}
            for each in common:
                if given[each.name] is None:
                    given[each.name] = before.get(each.name)
            options = Options(**given)
            with running(options, local=local) as session:
                function(session, **arguments)

        del run.__wrapped__  # its signature is not the one of the command
        run.__signature__ = inspect.Signature([_CONTEXT, *parameters])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (_CONTEXT, *parameters)}
        app.command(name, epilog="\n\n".join(("Examples:", *examples)))(run)
        return function

    return declare

"""The options that all daemons have: `-c FILE`, `--set key=value`, `--print-config`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .configuration import Configuration, KnownKeys, Override, SettingsT, load
from .reference import sample_file
from .tls_sources import tls_defaults
from .version_option import PrintVersion


def command_parser(program: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the common options; add the daemon's own, then pass its result to `load_from`."""
    parser = argparse.ArgumentParser(prog=program, description=description, allow_abbrev=False)
    parser.add_argument(
        "-c", "--config", metavar="FILE", type=Path, help="properties file with settings, by Apache's keys"
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        type=_assignment,
        action="append",
        default=[],
        help="a setting, overrides the file; may be repeated",
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        type=Path,
        help="a file that has the daemon's addresses, in JSON, while it serves",
    )
    parser.add_argument(
        "-p", "--print-config", action="store_true", help="print all settings with their meanings and exit"
    )
    parser.add_argument("--version", action=PrintVersion, nargs=0, help="print the version and exit")
    return parser


def load_from(
    options: argparse.Namespace,
    model: type[SettingsT],
    known_keys: KnownKeys,
    shorthands: dict[str, tuple[str, Any]] | None = None,
    defaults: Callable[[Sequence[Override]], list[Override]] = lambda given: [],
) -> Configuration[SettingsT]:
    """Load the configuration: the file, then `--set`, then shorthands (`{"--port": ("listenPort", port)}`).

    A shorthand whose value is None is ignored. `defaults` gets the given settings, and returns settings that
    count where these lack the key. Settings of TLS have further sources (`tls_sources.py`). Raises
    SettingsError.
    """
    overrides = [Override(key, value) for key, value in options.set]
    overrides += [
        Override(key, str(value), option)
        for option, (key, value) in (shorthands or {}).items()
        if value is not None
    ]
    return load(
        model,
        options.config,
        overrides,
        known_keys,
        lambda given: [*defaults(given), *tls_defaults(given, os.environ)],
    )


def print_config(configuration: Configuration[SettingsT]) -> None:
    """Print every setting as a properties file that can be loaded again."""
    print(sample_file(configuration.describe(), configuration.unused), end="")


def _assignment(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key.strip(), value.strip()

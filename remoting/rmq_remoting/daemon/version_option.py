"""The option `--version` of all commands."""

from __future__ import annotations

import argparse
import platform
from typing import Any


class PrintVersion(argparse.Action):
    """Looks the version up on demand only, since that takes longer than the rest of the parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415

        from ..build_form import BUILD_FORM  # noqa: PLC0415

        python = f"{platform.python_implementation()} {platform.python_version()}"
        print(f"{parser.prog} {version('rmq')} ({BUILD_FORM}, {python})")
        parser.exit()

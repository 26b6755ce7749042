"""The entry point of `rmq`, and of `python -m rmq_cli`."""

from __future__ import annotations

import sys
from importlib import import_module

_NEEDED = frozenset({"typer", "rich"})


def main() -> None:
    """Run the command line. Without the packages of the extra `cli` a sentence says how to get them."""
    try:
        application = import_module("rmq_cli.main")
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(
            f"rmq: the package {error.name} is missing: install the extra `cli`, with pip install 'rmq[cli]'"
        )
    application.main()


if __name__ == "__main__":
    main()

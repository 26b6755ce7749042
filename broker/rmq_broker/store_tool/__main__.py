"""The entry point of `rmq-store`, and of `python -m rmq_broker.store_tool`."""

from __future__ import annotations

import sys

from rmq_remoting.daemon.platforms import run_on_linux


def main() -> int:
    """Run the command, and return its exit code. Other platforms than Linux get a sentence."""
    return run_on_linux("rmq-store", "rmq_broker.store_tool.main")


if __name__ == "__main__":
    sys.exit(main())

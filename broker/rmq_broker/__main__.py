"""The entry point of `rmq-broker`, and of `python -m rmq_broker`."""

from __future__ import annotations

import sys

from rmq_remoting.daemon.platforms import run_on_linux


def main() -> int:
    """Run the command, and return its exit code. Other platforms than Linux get a sentence."""
    return run_on_linux("rmq-broker", "rmq_broker.main")


if __name__ == "__main__":
    sys.exit(main())

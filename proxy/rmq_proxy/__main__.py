"""The entry point of `rmq-proxy`, and of `python -m rmq_proxy`."""

from __future__ import annotations

import sys

from rmq_remoting.daemon.platforms import run_on_linux


def main() -> int:
    """Run the command, and return its exit code. Other platforms than Linux get a sentence."""
    return run_on_linux("rmq-proxy", "rmq_proxy.main")


if __name__ == "__main__":
    sys.exit(main())

"""Shows and changes the offsets in a checkpoint: `python -m pyspark_rocketmq.checkpoint show|move|drop`."""

from __future__ import annotations

import sys

from .commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

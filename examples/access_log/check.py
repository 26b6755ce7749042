"""Compare the shipped lines with the lines that were read: `check.py LOG SEEN...`; exit code 1 if one is
missing.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path


def main() -> int:
    shipped = set(Path(sys.argv[1]).read_bytes().splitlines())
    seen: Counter[bytes] = Counter()
    for name in sys.argv[2:]:
        lines = Path(name).read_bytes().splitlines()
        print(f"{name}: {len(lines)} lines")
        seen.update(lines)
    missing = shipped - seen.keys()
    twice = sum(count - 1 for line, count in seen.items() if line in shipped)
    print(f"{len(shipped)} shipped, {len(missing)} missing, {twice} read more than once")
    return 1 if missing else 0


sys.exit(main())

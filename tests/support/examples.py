"""The number of examples of a property test, for both profiles of tests/conftest.py."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_LONG_FACTOR: Final = 10
_is_long: Final = settings.get_current_profile_name() == "long"


def examples(count: int) -> int:
    """Return `count` for `make test`, and ten times as many for `make test-long`.

    Used as `@settings(max_examples=examples(300))`: an explicit number takes the place of the profile's.
    """
    return count * _LONG_FACTOR if _is_long else count

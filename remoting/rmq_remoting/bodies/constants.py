"""Constants of bodies. Apart from these, so that clients do without pydantic until they need a body."""

from __future__ import annotations

from typing import Final

MASTER_BROKER_ID: Final = 0
SUBSCRIBE_ALL: Final = "*"
TAG_EXPRESSION: Final = "TAG"
SQL92_EXPRESSION: Final = "SQL92"
PERM_READ_WRITE: Final = 6

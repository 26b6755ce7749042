"""Administration of a cluster: one file per subject, joined in `Admin`.

`Admin` is imported at its first use. A program that needs few subjects joins them itself and loads no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .admin import Admin as Admin

__all__ = ["Admin"]


def __getattr__(name: str) -> Any:
    if name != "Admin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .admin import Admin  # noqa: PLC0415

    return Admin

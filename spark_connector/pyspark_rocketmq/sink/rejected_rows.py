"""Rejected rows of a slice, with the reason of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


class RejectedRows:
    """The rejected rows of one slice: the first reason of each, by the index of the row."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}

    def add(self, rows: Iterable[int], reason: str) -> None:
        """Reject rows for the same reason."""
        for row in rows:
            self.reasons.setdefault(int(row), reason)

    def add_where(self, rejected: npt.NDArray[np.bool_], reason: str) -> None:
        """Reject the rows for which the mask is true."""
        if rejected.any():
            self.add(np.flatnonzero(rejected), reason)

    def accepted(self, count: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that are not rejected."""
        mask = np.ones(count, np.bool_)
        if self.reasons:
            mask[list(self.reasons)] = False
        return mask


def as_mask(array: Any) -> npt.NDArray[np.bool_]:
    """Convert an Arrow array of booleans to a mask; null is false."""
    mask: npt.NDArray[np.bool_] = array.fill_null(False).to_numpy(zero_copy_only=False)
    return mask

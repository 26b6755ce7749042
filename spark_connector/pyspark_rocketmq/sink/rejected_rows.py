"""Rows that no topic gets, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


class RejectedRows:
    """The refused rows of one slice: the reason by the row's place in it. The first reason counts."""

    __slots__ = ("reasons",)

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}

    def add(self, rows: Iterable[int], reason: str) -> None:
        """Refuse rows for a reason that they share."""
        for row in rows:
            self.reasons.setdefault(int(row), reason)

    def add_where(self, rejected: npt.NDArray[np.bool_], reason: str) -> None:
        """Refuse the rows where the mask is true."""
        if rejected.any():
            self.add(np.flatnonzero(rejected), reason)

    def accepted(self, count: int) -> npt.NDArray[np.bool_]:
        """A mask of the rows that are not refused."""
        mask = np.ones(count, np.bool_)
        if self.reasons:
            mask[list(self.reasons)] = False
        return mask


def as_mask(array: Any) -> npt.NDArray[np.bool_]:
    """An Arrow array of booleans as a mask; null is false."""
    mask: npt.NDArray[np.bool_] = array.fill_null(False).to_numpy(zero_copy_only=False)
    return mask

"""Errors of the store.

StoreError
├── StoreUnavailable   nothing can be written now: disk full, stopped, or an I/O error
├── MessageRejected    this message can never be stored: too large
└── StoreDamaged       the directory cannot be opened as it is
"""

from __future__ import annotations


class StoreError(Exception):
    """Root of the store's errors."""


class StoreUnavailable(StoreError):
    """Nothing can be written now."""


class MessageRejected(StoreError):
    """This message can never be stored."""


class StoreDamaged(StoreError):
    """The directory cannot be opened as it is."""

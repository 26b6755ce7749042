"""Errors of the store.

StoreError
├── StoreUnavailable   nothing can be written now: disk full, stopped, or an I/O error
│   └── LogBusy        the disk is slow: the log has no space yet
├── MessageRejected    the message can never be stored, for example because it is too large
└── StoreDamaged       the directory cannot be opened in its present state
"""

from __future__ import annotations


class StoreError(Exception):
    """Root of the store's errors."""


class StoreUnavailable(StoreError):
    """Nothing can be written now."""


class LogBusy(StoreUnavailable):
    """The log has no space for the message yet, because the disk is slow."""


class MessageRejected(StoreError):
    """The message can never be stored."""


class StoreDamaged(StoreError):
    """The directory cannot be opened in its present state."""

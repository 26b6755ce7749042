"""Administration of a cluster: one file per subject, joined in `Admin`."""

from __future__ import annotations

from .admin import Admin as Admin

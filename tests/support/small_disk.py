"""A small file system that a test can fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A mounted tmpfs; skips the test if this process may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # A process that was killed just before may still use it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_disk(folder: Path) -> None:
    """Leave no space on a small disk: its size becomes that of its content."""
    status = os.statvfs(folder)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    remount_disk(folder, f"size={max(used, status.f_frsize)}")


def free_disk(folder: Path, mebibytes: int) -> None:
    """Give a small disk this size."""
    remount_disk(folder, f"size={mebibytes}m")


def remount_disk(folder: Path, option: str) -> None:
    """Change an option of a small disk: `ro`, `rw`, `size=…`."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)

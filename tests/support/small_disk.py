"""A small file system that a test can fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_ATTEMPTS: Final = 50


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
    """Leave no space on a small disk: its size becomes that of its content.

    A daemon may write to it meanwhile: the size is then too small, the mount is refused, and the next size is
    tried.
    """
    for _ in range(_ATTEMPTS):
        status = os.statvfs(folder)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        if _remount(folder, f"size={max(used, status.f_frsize)}").returncode == 0:
            return
    raise OSError(f"{folder} cannot be filled: its content grew before each of {_ATTEMPTS} attempts")


def free_disk(folder: Path, mebibytes: int) -> None:
    """Give a small disk this size."""
    remount_disk(folder, f"size={mebibytes}m")


def remount_disk(folder: Path, option: str) -> None:
    """Change an option of a small disk: `ro`, `rw`, `size=…`."""
    _remount(folder, option).check_returncode()


def _remount(folder: Path, option: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=False)

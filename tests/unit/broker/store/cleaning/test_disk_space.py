"""The use of the disk, and its levels."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path

import pytest

from rmq_broker.store.cleaning.disk_space import DiskLevel, DiskSpace
from rmq_broker.store.write_health import WriteHealth
from tests.support.broker_settings import broker_settings
from tests.unit.broker.store.fake_disk import FakeDisk, Health


class Checked:
    def __init__(self, root: Path, **keys: object) -> None:
        self.settings = broker_settings(storePathRootDir=str(root), **keys)
        self.disk = FakeDisk()
        self.health = Health()
        self.space = DiskSpace(self.settings, self.health, self.disk.statvfs)

    def at(self, percent: float) -> DiskLevel:
        self.disk.percent = percent
        return self.space.check()


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    return Checked(tmp_path)


def test_levels_begin_above_their_settings(checked: Checked) -> None:
    expected = {
        0: DiskLevel.ENOUGH,
        75: DiskLevel.ENOUGH,
        75.001: DiskLevel.CLEAN,
        85: DiskLevel.CLEAN,
        85.001: DiskLevel.FORCE,
        90: DiskLevel.FORCE,
        90.001: DiskLevel.REFUSE,
        100: DiskLevel.REFUSE,
    }
    assert {percent: checked.at(percent) for percent in expected} == expected


def test_blocks_reserved_for_root_do_not_count(checked: Checked) -> None:
    """As with `df`: a tenth of the fake disk's free blocks is reserved for root."""
    checked.at(50)
    assert checked.space.log_use is not None
    assert checked.space.log_use.ratio == 0.5


def test_agrees_with_df(tmp_path: Path) -> None:
    space = DiskSpace(broker_settings(storePathRootDir=str(tmp_path)), Health())
    space.check()
    usage = shutil.disk_usage(tmp_path)
    assert space.log_use is not None and space.queue_use is not None
    # Others write to this disk too.
    assert space.log_use.available_bytes == pytest.approx(usage.free, rel=0.05)
    assert space.log_use.used_bytes == pytest.approx(usage.used, rel=0.05)
    assert space.log_use.folder == tmp_path


def test_a_full_disk_refuses_messages_with_the_reason(
    checked: Checked, caplog: pytest.LogCaptureFixture
) -> None:
    checked.at(92.34)
    assert checked.space.refusal == checked.health.refusal
    for part in (
        "92.3% full",
        "29 MiB are left",
        "diskSpaceWarningLevelRatio=90",
        "fileReservedTime",
        "Free",
    ):
        assert part in str(checked.space.refusal)
    checked.at(95)
    assert "95.0% full" in str(checked.health.refusal), "it says how full the disk is now"
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, "told once, not with every check"


def test_messages_are_accepted_again_at_the_level_where_they_were_refused(
    checked: Checked, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache's broker waits until the disk is below the level of forced deletion."""
    caplog.set_level(logging.INFO)
    checked.at(91)
    checked.at(90)
    assert checked.space.refusal is None and checked.health.changes == ["refuse", "allow"]
    assert checked.at(90) is DiskLevel.FORCE and checked.health.changes == ["refuse", "allow"]
    assert [record.message for record in caplog.records if "accepted again" in record.message]


def test_a_changed_setting_applies_at_the_next_check(checked: Checked) -> None:
    checked.at(60)
    checked.settings.disk_space_warning_level_ratio = 50
    assert checked.at(60) is DiskLevel.REFUSE
    checked.settings.disk_space_warning_level_ratio = 100
    assert checked.at(100) is DiskLevel.FORCE


@pytest.mark.parametrize("folder", ["elsewhere", "store/consumequeue"])
def test_the_fuller_of_two_disks_counts(tmp_path: Path, folder: str) -> None:
    checked = Checked(tmp_path / "store", storePathCommitLog=str(tmp_path / "elsewhere"))
    checked.disk.by_folder[tmp_path / folder] = 93
    assert checked.at(10) is DiskLevel.REFUSE
    assert f"the disk of {tmp_path / folder} is 93.0% full" in str(checked.space.refusal)


def test_folders_that_do_not_exist_yet(tmp_path: Path) -> None:
    settings = broker_settings(storePathRootDir=str(tmp_path / "new" / "store"))
    space = DiskSpace(settings, Health())
    space.check()
    assert space.queue_use is not None and space.queue_use.folder == tmp_path


def test_a_file_system_that_does_not_answer(checked: Checked, caplog: pytest.LogCaptureFixture) -> None:
    checked.at(91)
    checked.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    caplog.clear()
    assert [checked.at(10), checked.at(10)] == [DiskLevel.REFUSE, DiskLevel.REFUSE], "all stays as it was"
    assert len(caplog.records) == 1 and "disk use unknown" in caplog.text
    assert checked.space.failures == 2 and checked.health.refusal is not None
    checked.disk.error = None
    assert checked.at(10) is DiskLevel.ENOUGH and checked.health.refusal is None


def test_only_the_own_cause_is_removed(tmp_path: Path) -> None:
    health, disk = WriteHealth(), FakeDisk(99)
    space = DiskSpace(broker_settings(storePathRootDir=str(tmp_path)), health, disk.statvfs)
    health.refuse("flush", "flushing failed")
    space.check()
    disk.percent = 1
    space.check()
    assert health.refusal == "flushing failed"

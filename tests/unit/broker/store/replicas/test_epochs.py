"""Epochs of a log: Apache's file, the point up to which two logs agree, and changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreDamaged
from rmq_broker.store.replicas.epochs import Epoch, EpochFile, agreeing_end, decode_epochs, encode_epochs

# As Apache's EpochFileCache writes it: the CRC is Java's CRC32 of the lines behind it, without its sign bit.
_APACHE = b"2\n355729437\n1-0\n2-100\n"
_EPOCHS = (Epoch(1, 0), Epoch(2, 100))


def _file(folder: Path, *epochs: Epoch) -> EpochFile:
    path = folder / "epochFileCheckpoint"
    if epochs:
        path.write_bytes(encode_epochs(epochs))
    file = EpochFile(path)
    file.load(0, 10_000)
    return file


def _reloaded(folder: Path) -> tuple[Epoch, ...]:
    return _file(folder).epochs


# --- the file ---


def test_the_file_is_as_apaches() -> None:
    assert encode_epochs(_EPOCHS) == _APACHE
    assert decode_epochs(_APACHE) == _EPOCHS


def test_a_crc_of_zero_is_not_checked() -> None:
    assert decode_epochs(b"1\n0\n7-5\n") == (Epoch(7, 5),)


@pytest.mark.parametrize(
    "content", [b"2\n1\n1-0\n2-100\n", b"3\n0\n1-0\n2-100\n", b"2\n0\n2-0\n1-100\n", b"1\n0\nx-1\n", b"1\n"]
)
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "epochFileCheckpoint").write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"epochFileCheckpoint is not readable.*backup"):
        _file(tmp_path)


def test_the_backup_stands_in_for_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "epochFileCheckpoint").write_bytes(b"nonsense")
    (tmp_path / "epochFileCheckpoint.bak").write_bytes(_APACHE)
    assert _reloaded(tmp_path) == _EPOCHS


def test_without_a_file_there_is_no_epoch(tmp_path: Path) -> None:
    file = _file(tmp_path)
    assert (file.epochs, file.last, file.at(0)) == ((), -1, None)


def test_epochs_that_the_log_does_not_reach_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "epochFileCheckpoint").write_bytes(_APACHE)
    file = EpochFile(tmp_path / "epochFileCheckpoint")
    file.load(0, 99)
    assert file.epochs == (Epoch(1, 0),)
    assert _reloaded(tmp_path) == (Epoch(1, 0),)


# --- changes ---


def test_a_master_begins_its_epoch_at_the_end_of_its_log(tmp_path: Path) -> None:
    file = _file(tmp_path, Epoch(1, 0))
    file.begin(4, 0, 500)
    assert file.epochs == _reloaded(tmp_path) == (Epoch(1, 0), Epoch(4, 500))
    assert file.at(499) == (Epoch(1, 0), 500)
    assert file.at(500) == (Epoch(4, 500), None)


def test_a_log_without_epochs_is_of_the_first_as_a_whole(tmp_path: Path) -> None:
    file = _file(tmp_path)
    file.begin(1, 64, 500)
    assert file.epochs == (Epoch(1, 64),)


def test_a_master_of_the_same_epoch_begins_it_anew(tmp_path: Path) -> None:
    """It may have lost the end of its log, as Apache's broker takes for granted, too."""
    file = _file(tmp_path, Epoch(1, 0), Epoch(2, 100))
    file.begin(2, 0, 150)
    assert file.epochs == (Epoch(1, 0), Epoch(2, 150))


def test_an_epoch_without_bytes_is_not_kept(tmp_path: Path) -> None:
    file = _file(tmp_path, Epoch(1, 0), Epoch(2, 100))
    file.received(Epoch(3, 100))
    file.received(Epoch(2, 120))
    assert file.epochs == _EPOCHS


def test_a_replica_takes_over_the_epochs_of_its_log(tmp_path: Path) -> None:
    file = _file(tmp_path, Epoch(1, 0), Epoch(9, 50))
    file.follow([Epoch(1, 0), Epoch(2, 100), Epoch(3, 200)], 200)
    assert file.epochs == _reloaded(tmp_path) == _EPOCHS


def test_truncation_drops_the_epochs_behind_it(tmp_path: Path) -> None:
    file = _file(tmp_path, *_EPOCHS)
    file.truncate(100)
    assert file.epochs == (Epoch(1, 0),)
    file.truncate(0)
    assert file.epochs == _reloaded(tmp_path) == ()


def test_epochs_of_deleted_files_are_dropped(tmp_path: Path) -> None:
    file = _file(tmp_path, *_EPOCHS, Epoch(3, 200))
    file.drop_deleted(150)
    assert file.epochs == (Epoch(2, 100), Epoch(3, 200))


# --- agreement ---


@pytest.mark.parametrize(
    ("own", "own_end", "master", "master_end", "agreeing"),
    [
        (_EPOCHS, 150, _EPOCHS, 300, 150),  # the replica lacks the end
        (_EPOCHS, 300, _EPOCHS, 150, 150),  # the master does
        (_EPOCHS, 150, (*_EPOCHS, Epoch(3, 140)), 300, 140),  # the old master had messages of its own
        ((Epoch(1, 0),), 120, _EPOCHS, 300, 100),
        ((Epoch(1, 0), Epoch(2, 90)), 120, (Epoch(1, 0), Epoch(3, 80)), 300, 80),
        ((Epoch(5, 0),), 10, (Epoch(6, 0),), 10, -1),
        ((), 10, _EPOCHS, 10, -1),
    ],
)
def test_logs_agree_up_to_the_end_of_the_newest_common_epoch(
    own: tuple[Epoch, ...], own_end: int, master: tuple[Epoch, ...], master_end: int, agreeing: int
) -> None:
    assert agreeing_end(own, own_end, master, master_end) == agreeing

"""The id that the controller gave this broker, in files of Apache's format.

`brokerIdentity` holds `cluster#name#id`. Until the controller has accepted an id, `brokerIdentity-temp` holds
`cluster#name#id#code`. The code makes a repeated application for the id succeed. Source: Apache RocketMQ
5.3.3, BrokerMetadata, TempBrokerMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.atomic_file import replace_file, sync_folder
from rmq_remoting.daemon.lifecycle import StartError

_PARTS: Final = 3
_PARTS_OF_APPLICATION: Final = 4


@dataclass(frozen=True, slots=True)
class Application:
    """An id that this broker applies for, and the code of the application."""

    broker_id: int
    code: str


class IdentityFiles:
    """Both files of one broker. Methods block; they raise OSError, and StartError for files of others."""

    def __init__(self, path: Path, cluster: str, name: str) -> None:
        self._path = path
        self._temporary = path.with_name(f"{path.name}-temp")
        self._cluster = cluster
        self._name = name

    @property
    def path(self) -> Path:
        """The file with the id."""
        return self._path

    def load(self) -> int | None:
        """Return this broker's id; None if it has none yet."""
        parts = self._read(self._path, _PARTS)
        return None if parts is None else self._id(self._path, parts)

    def load_application(self) -> Application | None:
        """Return the application that was not answered before the last stop."""
        parts = self._read(self._temporary, _PARTS_OF_APPLICATION)
        return None if parts is None else Application(self._id(self._temporary, parts), parts[3])

    def apply(self, application: Application) -> None:
        """Keep an application. Durable on return."""
        text = f"{self._cluster}#{self._name}#{application.broker_id}#{application.code}"
        replace_file(self._temporary, text.encode())

    def accept(self, broker_id: int) -> None:
        """Keep the id for good. Durable on return."""
        replace_file(self._path, f"{self._cluster}#{self._name}#{broker_id}".encode())
        self.drop_application()

    def drop_application(self) -> None:
        """Forget an application that was refused, or accepted."""
        self._temporary.unlink(missing_ok=True)
        sync_folder(self._temporary.parent)

    def _read(self, path: Path, count: int) -> list[str] | None:
        try:
            text = path.read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise self._unreadable(path, str(error)) from error
        if not text:
            return None
        parts = text.split("#", count - 1)
        if len(parts) != count:
            raise self._unreadable(path, f"{text!r:.120} has no {count} parts")
        if parts[:2] != [self._cluster, self._name]:
            raise StartError(
                f"{path} is of broker {parts[1]} in cluster {parts[0]}, the settings are of broker "
                f"{self._name} in cluster {self._cluster}. Correct storePathRootDir, brokerName or "
                "brokerClusterName. To move the store to another group, remove this file and "
                "epochFileCheckpoint"
            )
        return parts

    def _id(self, path: Path, parts: list[str]) -> int:
        try:
            return int(parts[2])
        except ValueError as error:
            raise self._unreadable(path, f"{parts[2]!r:.40} is no id") from error

    def _unreadable(self, path: Path, reason: str) -> StartError:
        return StartError(
            f"{path} is not readable: {reason}. Restore it, or write {self._cluster}#{self._name}#ID into it "
            "with the id that `mqadmin getSyncStateSet` shows for this broker"
        )

"""Preparation of a daemon's process, after its modules are imported and before it runs."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Mapping
from typing import Final, TypeVar

from .common_settings import LogSettings
from .configuration import Configuration
from .logs import configure_logs, set_log_level

# A computing thread (a list of all topics, statistics) hands the interpreter back to the loop after this,
# not after 5 ms.
_SWITCH_SECONDS: Final = 0.0005

SettingsT = TypeVar("SettingsT", bound=LogSettings)


def prepare_process(
    configuration: Configuration[SettingsT], logger: str, log_fields: Mapping[str, str] | None = None
) -> None:
    """Set up logs, log the notes on the configuration, and tune the interpreter for the event loop.

    Every log line has the given fields.
    """
    settings = configuration.settings
    configure_logs(settings.log_level, settings.log_format, fields=log_fields)
    for note in configuration.notes:
        logging.getLogger(logger).warning("%s", note)
    configuration.on_change(lambda _: set_log_level(settings.log_level))
    sys.setswitchinterval(_SWITCH_SECONDS)
    # The objects loaded so far live as long as the process: exclude them from cycle collections.
    gc.collect()
    gc.freeze()
    gc.enable()

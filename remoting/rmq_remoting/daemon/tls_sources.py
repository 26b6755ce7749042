"""Where settings of TLS come from besides the daemon's own file: Java options and `tls.config.file`.

Of one key, the first of these sources counts: the command line, the daemon's own file, `tls.config.file`, and
the Java options in the environment. Apache RocketMQ 5.3.3 (TlsSystemConfig, TlsHelper) knows the last two, in
this order, and ignores `tls.server.mode` in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .configuration import Override, read_file
from .java_options import system_properties
from .settings import fields_by_key
from .tls_settings import DEFAULT_TLS_FILE, TlsSettings

_FILE_KEY: Final = "tls.config.file"
_PREFIX: Final = "tls."


def tls_defaults(given: Sequence[Override], environment: Mapping[str, str]) -> list[Override]:
    """Return the settings of TLS that count where `given` lacks the key. Raises SettingsError.

    The default of `tls.config.file` is ignored if it does not exist; one that was named must be readable.
    """
    known = fields_by_key(TlsSettings)
    options = [
        Override(key, value, f"environment variable {variable}")
        for key, value, variable in system_properties(environment)
        if key.startswith(_PREFIX) and key in known  # others may belong to other Java programs
    ]
    named = [override.value for override in (*options, *given) if override.key == _FILE_KEY]
    file = Path(named[-1] if named else DEFAULT_TLS_FILE)
    if not named and not file.is_file():
        return options
    return [*options, *(override for override in read_file(file) if override.key.startswith(_PREFIX))]

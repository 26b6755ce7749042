"""Settings that an environment made for Apache's servers passes as options of the Java virtual machine (JVM).

Apache RocketMQ 5.3.3 reads its TLS settings as system properties, such as `-Dtls.server.mode=enforcing`.
Operators set them in variables that its start scripts (runserver.sh, runbroker.sh) or the JVM itself read.
`tls_sources.py` takes them from there: a daemon that ignored such an option would serve without the
protection that the operator asked for.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

# In the order in which the JVM applies them: the last value of a property wins.
_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPT", "JAVA_OPT_EXT", "_JAVA_OPTIONS")
_DEFINE: Final = "-D"


def system_properties(environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Iterate over key, value and variable of each `-Dkey=value`."""
    for variable in _VARIABLES:
        for option in _options(environment.get(variable, "")):
            if option.startswith(_DEFINE):
                key, _, value = option.removeprefix(_DEFINE).partition("=")
                yield key, value, variable


def _options(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark without its counterpart
        return text.split()

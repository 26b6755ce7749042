"""System properties that the environment holds for Apache's servers."""

from __future__ import annotations

import pytest

from rmq_remoting.daemon.configuration import Override
from rmq_remoting.daemon.java_options import unsupported_in_java_options
from rmq_remoting.daemon.unsupported_settings import METRICS, TLS

_RULES = (*TLS, *METRICS)


def _found(**environment: str) -> list[Override]:
    return unsupported_in_java_options(_RULES, environment)


@pytest.mark.parametrize(
    "variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPT", "JAVA_OPT_EXT", "_JAVA_OPTIONS"]
)
def test_a_property_is_found_among_other_options(variable: str) -> None:
    text = "-Xmx4g -Dtls.server.mode=enforcing  -Duser.timezone=UTC"
    assert _found(**{variable: text}) == [
        Override("tls.server.mode", "enforcing", f"environment variable {variable}")
    ]


@pytest.mark.parametrize(
    "text", ["-Dtls.enable=true", "'-Dtls.enable=true'", '-Dtls.enable="true"', "-Dtls.enable=true it's"]
)
def test_options_may_be_quoted(text: str) -> None:
    assert [found.key for found in _found(JAVA_OPT=text)] == ["tls.enable"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-Dtls.server.mode=permissive -Dtls.enable=false",
        "-Dtls.server.mode",
        "-Xtls.server.mode=enforcing",
        "tls.server.mode=enforcing",
        "-DuseTLS=true -DmetricsExporterType=LOG",  # keys of files, which no JVM reads
    ],
)
def test_other_options_are_ignored(text: str) -> None:
    assert _found(JAVA_OPT=text, HOME="-Dtls.enable=true") == []


def test_the_last_value_of_a_property_counts() -> None:
    on, off = "-Dtls.enable=true", "-Dtls.enable=false"
    assert _found(JAVA_OPT=f"{on} {off}") == []
    assert _found(JAVA_OPT_EXT=off, JAVA_OPT=on) == []
    assert _found(JAVA_OPT_EXT=on, JAVA_OPT=off) != []

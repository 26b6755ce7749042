"""System properties that the environment holds for Apache's servers."""

from __future__ import annotations

import pytest

from rmq_remoting.daemon.java_options import system_properties

_MODE = "tls.server.mode"


def _found(**environment: str) -> list[tuple[str, str, str]]:
    return list(system_properties(environment))


@pytest.mark.parametrize(
    "variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "JAVA_OPT", "JAVA_OPT_EXT", "_JAVA_OPTIONS"]
)
def test_a_property_is_found_among_other_options(variable: str) -> None:
    text = "-Xmx4g -Dtls.server.mode=enforcing  -Duser.timezone=UTC"
    assert _found(**{variable: text}) == [
        (_MODE, "enforcing", variable),
        ("user.timezone", "UTC", variable),
    ]


@pytest.mark.parametrize(
    "text", ["-Dtls.enable=true", "'-Dtls.enable=true'", '-Dtls.enable="true"', "-Dtls.enable=true it's"]
)
def test_options_may_be_quoted(text: str) -> None:
    assert _found(JAVA_OPT=text)[0][0] == "tls.enable"


@pytest.mark.parametrize("text", ["", "-Xtls.server.mode=enforcing", "tls.server.mode=enforcing"])
def test_other_options_are_ignored(text: str) -> None:
    assert _found(JAVA_OPT=text, HOME="-Dtls.enable=true") == []


def test_properties_follow_each_other_as_the_jvm_applies_them() -> None:
    found = _found(JAVA_OPT_EXT="-Dtls.enable=false", JAVA_OPT="-Dtls.enable=true -Dtls.enable")
    assert [value for _, value, _ in found] == ["true", "", "false"]

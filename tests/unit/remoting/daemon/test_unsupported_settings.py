"""Which values count as a request for a missing feature, and what the operator reads."""

from __future__ import annotations

import pytest

from rmq_remoting.daemon.unsupported_settings import (
    NOT_EMPTY,
    TRUE,
    RefusedValues,
    UnsupportedSetting,
    above,
    one_of,
    other_than,
    several,
)


@pytest.mark.parametrize(
    ("values", "refused", "accepted"),
    [
        (TRUE, ["true", " TRUE "], ["false", "False"]),
        (NOT_EMPTY, ["x", "/a/b"], ["", "  "]),
        (one_of("SLAVE", "SYNC_MASTER"), ["SLAVE", " SYNC_MASTER "], ["ASYNC_MASTER", ""]),
        (other_than("disabled", "permissive"), ["enforcing", "enforced"], ["disabled", "Permissive", ""]),
        (above(1), ["2", " 3 "], ["1", "0", "-1"]),
        (several(","), ["/a,/b", "/a, /b,"], ["/a", "/a,", ""]),
    ],
    ids=["true", "not empty", "one of", "other than", "above", "several"],
)
def test_only_values_that_ask_for_the_feature_match(
    values: RefusedValues, refused: list[str], accepted: list[str]
) -> None:
    assert [value for value in refused if not values.match(value)] == []
    assert [value for value in accepted if values.match(value)] == []


def test_the_reason_names_the_missing_feature_and_a_remedy() -> None:
    rule = UnsupportedSetting("gate", TRUE, "a gate", "build a wall")
    assert rule.reason == "a gate is not supported by this version; build a wall"

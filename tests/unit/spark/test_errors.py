"""Error messages, and pickling of errors from a worker to the driver."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketmq.errors import (
    BadOffsets,
    ConnectorError,
    DataLoss,
    OptionError,
    SourceUnavailable,
    UnknownOption,
    listed,
    shortened,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OptionError("minPartitions", "x", "a whole number"),
            "option minPartitions is 'x': it must be a whole number",
        ),
        (
            OptionError("assign", "{", "JSON", "line 1"),
            "option assign is '{': it must be JSON (line 1)",
        ),
        (OptionError("groupId", None, "given"), "option groupId is not given: it must be given"),
        (
            UnknownOption("subscibe", "did you mean subscribe?"),
            "option subscibe is unknown here: did you mean ",
        ),
        (BadOffsets("twice"), "twice"),
        (DataLoss("gone"), "gone"),
        (SourceUnavailable("away"), "away"),
    ],
)
def test_messages_survive_pickling(error: ConnectorError, text: str) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert isinstance(again, ConnectorError)
    assert str(again) == str(error)
    assert str(error).startswith(text)
    assert vars(again) == vars(error)


def test_unknown_option_hides_its_value() -> None:
    assert UnknownOption("rocketmq.secret", "settings of the client are a, b").value is None


def test_long_values_are_shortened() -> None:
    assert shortened("x" * 200) == "x" * 200
    assert shortened("x" * 201) == "x" * 200 + "… (201 characters)"
    assert len(str(OptionError("assign", "x" * 100_000, "JSON", "y" * 100_000))) < 600
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"

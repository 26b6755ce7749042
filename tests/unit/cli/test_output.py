"""Results as tables, JSON and CSV."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rmq_cli.output import Format, Output, counted

_ROWS = [
    {
        "name": "a",
        "number": 5,
        "rate": 0.1234,
        "on": True,
        "none": None,
        "names": ["x", "y"],
        "time": datetime(2026, 11, 26, 18, tzinfo=UTC),
    }
]
_COLUMNS = ("name", "number", "rate", "on", "none", "names", "time")


def test_json_keeps_types(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.JSON).rows(_ROWS, _COLUMNS)
    assert json.loads(capsys.readouterr().out) == [
        {**_ROWS[0], "rate": 0.123, "time": "2026-11-26T18:00:00+00:00"}
    ]


def test_csv_has_a_line_of_names(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.CSV).rows(_ROWS, _COLUMNS)
    assert capsys.readouterr().out == (
        "name,number,rate,on,none,names,time\na,5,0.123,true,,x y,2026-11-26T18:00:00+00:00\n"
    )


def test_tables_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.TABLE).rows(_ROWS, _COLUMNS)
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == list(_COLUMNS)
    assert row.split()[:7] == ["a", "5", "0.123", "yes", "-", "x", "y"]


def test_long_rows_are_not_cut_where_the_output_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.TABLE).rows([{"name": "x" * 500}], ("name",))
    assert "x" * 500 in capsys.readouterr().out


def test_markup_in_names_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.TABLE).rows([{"name": "[red]x[/red]"}], ("name",))
    assert "[red]x[/red]" in capsys.readouterr().out


def test_a_record_is_an_object_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.JSON).record({"a": 1})
    assert capsys.readouterr().out == '{"a": 1}\n'
    Output(Format.CSV).record({"a": 1, "b": "x,y"})
    assert capsys.readouterr().out == 'name,value\na,1\nb,"x,y"\n'


@pytest.mark.parametrize(("number", "text"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages")])
def test_a_number_has_its_noun(number: int, text: str) -> None:
    assert counted(number, "message") == text

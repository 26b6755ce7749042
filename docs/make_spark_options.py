"""Writes docs/spark_options.md from the options themselves: `python docs/make_spark_options.py`."""

from __future__ import annotations

from pathlib import Path

from pyspark_rocketmq.options.reference import markdown

_PAGE = Path(__file__).with_name("spark_options.md")
_HEAD = """\
# Options of the Spark connector

Given with `.option(name, value)`; upper and lower case are alike. An option that does not exist, or has a
value that is not allowed, is refused on the driver before anything runs. Their use: [spark.md](spark.md).

This page is written by `python docs/make_spark_options.py`.

"""


def page() -> str:
    """The whole page."""
    return f"{_HEAD}{markdown().rstrip()}\n"


if __name__ == "__main__":
    _PAGE.write_text(page())

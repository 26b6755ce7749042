"""The reference of the Spark connector lists everything that the code has."""

from __future__ import annotations

import runpy

from pyspark_rocketmq.columns import COLUMNS
from pyspark_rocketmq.lag.metrics import LagCollector
from pyspark_rocketmq.options import ReadOptions, WriteOptions
from pyspark_rocketmq.options.parsing import option_infos
from pyspark_rocketmq.sink import schema
from tests.unit.docs.pages import DOCS, section_of

_REFERENCE = DOCS / "spark" / "reference.md"


def test_the_reference_lists_every_column_of_a_read() -> None:
    section = section_of(_REFERENCE, "Columns of a read")
    assert [column.name for column in COLUMNS if f"`{column.name}`" not in section] == []


def test_the_reference_lists_every_column_of_a_write() -> None:
    section = section_of(_REFERENCE, "Columns of a write")
    names = [value for name, value in vars(schema).items() if name.isupper() and isinstance(value, str)]
    assert len(names) == 11
    assert [name for name in names if f"`{name}`" not in section] == []


def test_the_reference_lists_every_metric() -> None:
    section = section_of(_REFERENCE, "Metrics")
    families = list(LagCollector(list, per_queue=True).describe())
    assert len(families) == 11
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in section, name


def test_the_comparison_lists_every_option() -> None:
    page = (DOCS / "spark_comparison.md").read_text()
    infos = [*option_infos(ReadOptions), *option_infos(WriteOptions)]
    names = {info.name for info in infos if not info.name.startswith("rocketmq.tls.")}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_the_page_of_options_is_what_its_script_writes() -> None:
    written = runpy.run_path(str(DOCS / "make_spark_options.py"))["page"]
    assert (DOCS / "spark_options.md").read_text() == written(), "run: python docs/make_spark_options.py"

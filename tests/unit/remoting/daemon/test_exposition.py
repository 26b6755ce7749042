"""Metrics as text, parsed by Prometheus' own parser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rmq_remoting.daemon.exposition import PAUSE, Family, Field, counter, fields_of, gauge, render
from rmq_remoting.daemon.histogram import Histogram


def _samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _text(*families: Family, **common: str) -> str:
    return "".join(render(families, common))


def test_every_series_has_the_common_labels() -> None:
    family = Family("rmq_x", "gauge", "What x is.", [(("a", "b"), 1), (("c", "d"), 2.5)], ("p", "q"))
    assert _text(family, cluster="k") == (
        "# HELP rmq_x What x is.\n"
        "# TYPE rmq_x gauge\n"
        'rmq_x{cluster="k",p="a",q="b"} 1\n'
        'rmq_x{cluster="k",p="c",q="d"} 2.5\n'
    )


def test_without_labels_there_are_no_braces() -> None:
    assert _text(counter("rmq_total", "All.", 3)).endswith("\nrmq_total 3\n")
    assert _text(gauge("rmq_on", "Whether.", True)).endswith("\nrmq_on 1\n")


@pytest.mark.parametrize("value", [0, 2**63, 1.5, 1e300, 1e-9, math.inf, -math.inf])
def test_numbers_are_exact(value: float) -> None:
    assert _samples(_text(gauge("rmq_x", "", value))) == {("rmq_x", ()): value}


def test_nan_is_exposed() -> None:
    (value,) = _samples(_text(gauge("rmq_x", "", math.nan))).values()
    assert math.isnan(value)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_can_be_a_label_or_a_meaning(text: str) -> None:
    families = list(
        text_string_to_metric_families(_text(Family("rmq_x", "gauge", text, [((text,), 1)], ("topic",))))
    )
    assert families[0].samples[0].labels == {"topic": text}


def test_a_pause_among_families_exposes_nothing() -> None:
    families = [gauge("rmq_a", "A.", 1), PAUSE, gauge("rmq_b", "B.", 2)]
    pieces = list(render(families, {}))
    assert "" in pieces
    assert "".join(pieces) == "".join(render([families[0], families[2]], {}))


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 3, 100):
        histogram.observe(value)
    family = Family("rmq_t_seconds", "histogram", "Times.", [(("a",), histogram)], ("p",))
    assert _samples(_text(family)) == {
        ("rmq_t_seconds_bucket", (("le", "1.0"), ("p", "a"))): 2,
        ("rmq_t_seconds_bucket", (("le", "2.5"), ("p", "a"))): 3,
        ("rmq_t_seconds_bucket", (("le", "+Inf"), ("p", "a"))): 5,
        ("rmq_t_seconds_count", (("p", "a"),)): 5,
        ("rmq_t_seconds_sum", (("p", "a"),)): 106.5,
    }


def test_plain_attributes_become_families() -> None:
    class Counts:
        def __init__(self, sent: int) -> None:
            self.sent = sent
            self.waiting = 0

    fields = {
        "sent": Field("rmq_sent_total", "counter", "Sent."),
        "waiting": Field("rmq_waiting", "gauge", "Waiting."),
    }
    families = fields_of("tier", {"a": Counts(1), "b": Counts(2)}, fields)
    assert _samples(_text(*families)) == {
        ("rmq_sent_total", (("tier", "a"),)): 1,
        ("rmq_sent_total", (("tier", "b"),)): 2,
        ("rmq_waiting", (("tier", "a"),)): 0,
        ("rmq_waiting", (("tier", "b"),)): 0,
    }


def test_series_with_a_wrong_number_of_labels_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        _text(Family("rmq_x", "gauge", "", [(("a", "b"), 1)], ("p",)))

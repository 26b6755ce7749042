"""Settings as text for people."""

from __future__ import annotations

from pathlib import Path

from rmq_remoting.daemon.configuration import Override, load
from rmq_remoting.daemon.reference import markdown_tables, sample_file, unsupported_table
from rmq_remoting.daemon.settings import describe_settings

from .sample_settings import HouseSettings, known_keys


def test_the_sample_lists_all_settings_and_sets_only_given_ones() -> None:
    configuration = load(
        HouseSettings, None, [Override("door", "5"), Override("gardenSize", "4")], known_keys
    )
    text = sample_file(configuration.describe(), configuration.unused)
    assert "#### House\n" in text
    assert "# Number of the door. [from 0 to 65535; default 80]\ndoor=5\n" in text
    assert (
        "# Drying time. [ms; at least 1; default 500; changeable while running]\n# dryingTime=500\n" in text
    )
    assert "# Number of owners. [default 1; not a key of Apache's]\n# owners=1\n" in text
    assert "#### Given, but without effect here\n\ngardenSize=4\n" in text
    assert max(map(len, text.splitlines())) <= 110


def test_the_sample_can_be_loaded(tmp_path: Path) -> None:
    configuration = load(
        HouseSettings, None, [Override("door", "5"), Override("gardenSize", "4")], known_keys
    )
    path = tmp_path / "sample.conf"
    path.write_text(sample_file(configuration.describe(), configuration.unused))
    again = load(HouseSettings, path, (), known_keys)
    assert again.settings == configuration.settings
    assert again.unused == configuration.unused


def test_markdown_has_a_table_for_each_group() -> None:
    text = markdown_tables(describe_settings(HouseSettings))
    assert text.count("## ") == 2
    assert "| `dryingTime` | `500` | ms | Drying time. Changeable while running. |" in text


def test_refused_values_are_listed_with_feature_and_remedy() -> None:
    first, *_ = unsupported_table(HouseSettings.unsupported).splitlines()[2:]
    assert first == "| `colour` | `BLACK` | black paint | use GREEN |"

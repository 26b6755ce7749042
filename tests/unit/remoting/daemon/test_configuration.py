"""Loading settings, refusing bad ones, changing them at run time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_remoting.daemon.configuration import (
    Change,
    Configuration,
    Override,
    Problem,
    ProblemKind,
    SettingsError,
    load,
)

from .sample_settings import Colour, HouseSettings, known_keys


def _load(*pairs: tuple[str, str]) -> Configuration[HouseSettings]:
    return load(HouseSettings, None, [Override(*pair) for pair in pairs], known_keys)


def _problems(*pairs: tuple[str, str]) -> tuple[Problem, ...]:
    with pytest.raises(SettingsError) as caught:
        _load(*pairs)
    return caught.value.problems


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "house.conf"
    path.write_text(text)
    return path


class TestLoading:
    def test_without_arguments_settings_have_their_defaults(self) -> None:
        configuration = load(HouseSettings)
        assert configuration.settings == HouseSettings()
        assert configuration.notes == []

    def test_the_command_line_overrides_the_file(self, tmp_path: Path) -> None:
        path = _file(tmp_path, "door=1\ncolour = GREEN\ndoor=2\n")
        settings = load(HouseSettings, path, [Override("door", "3", "--door")]).settings
        assert (settings.door, settings.colour) == (3, Colour.GREEN)

    def test_of_a_repeated_key_the_last_value_wins(self, tmp_path: Path) -> None:
        assert load(HouseSettings, _file(tmp_path, "door=1\ndoor=2\n")).settings.door == 2

    def test_notes_of_the_settings_are_included(self) -> None:
        assert _load(("colour", "GREEN")).notes == ["a note"]

    def test_settings_that_contradict_each_other_are_refused(self) -> None:
        assert [str(problem) for problem in _problems(("door", "666"))] == ["door=666 leads nowhere"]

    def test_the_error_for_a_missing_file_names_it(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match=r"nowhere\.conf: cannot be read: No such file"):
            load(HouseSettings, tmp_path / "nowhere.conf")

    def test_the_error_for_a_malformed_file_names_it(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match=r"house\.conf: line 2: .*hexadecimal"):
            load(HouseSettings, _file(tmp_path, "door=1\nhouseName=\\u1\n"))


class TestApachesUnusedKeys:
    def test_are_accepted_with_a_note(self, tmp_path: Path) -> None:
        configuration = load(HouseSettings, _file(tmp_path, "\ngardenSize=4\n"), (), known_keys)
        assert configuration.unused == {"gardenSize": "4"}
        assert configuration.notes == [
            "house.conf line 2: gardenSize (Garden of Apache RocketMQ) is accepted, but has no effect here"
        ]

    @pytest.mark.parametrize(
        ("key", "value", "must"),
        [
            ("gardenSize", "big", "a whole number"),
            ("gardenOpen", "maybe", "true or false"),
            ("gardenRatio", "half", "a number"),
        ],
    )
    def test_are_validated_by_their_type(self, key: str, value: str, must: str) -> None:
        (problem,) = _problems((key, value))
        assert (problem.kind, problem.reason) == (ProblemKind.BAD_VALUE, f"must be {must}")

    def test_are_read_only_for_unknown_keys(self) -> None:
        def fail() -> dict[str, object]:
            raise AssertionError("the table was read")

        load(HouseSettings, None, [Override("door", "1")], fail)  # type: ignore[arg-type]


class TestRefusals:
    def test_the_error_for_an_unknown_key_suggests_the_nearest(self) -> None:
        (problem,) = _problems(("doors", "1"))
        assert problem == Problem(
            ProblemKind.UNKNOWN_KEY, "doors", "1", "--set", "no such setting", nearest="door"
        )
        assert str(problem) == "--set: doors=1: no such setting; did you mean door?"

    @pytest.mark.parametrize(
        ("key", "nearest"), [("HOUSENAME", "houseName"), ("gardensize", "gardenSize"), ("xyzzy", None)]
    )
    def test_suggestions_include_apaches_keys(self, key: str, nearest: str | None) -> None:
        assert _problems((key, "1"))[0].nearest == nearest

    @pytest.mark.parametrize(
        ("key", "value", "reason"),
        [
            ("door", "x", "must be a whole number from 0 to 65535"),
            ("steps", "x", "must be a whole number from -9223372036854775808 to 9223372036854775807"),
            ("lit", "x", "must be true or false"),
            ("colour", "x", "must be one of RED, GREEN, BLACK"),
            ("cellarPath", "", "must be a path"),
        ],
    )
    def test_the_error_for_a_bad_value_lists_the_allowed_ones(
        self, key: str, value: str, reason: str
    ) -> None:
        assert [str(problem) for problem in _problems((key, value))] == [f"--set: {key}={value}: {reason}"]

    @pytest.mark.parametrize(
        ("key", "value", "reason"),
        [
            ("colour", "BLACK", "black paint is not supported by this version; use GREEN"),
            ("gardenName", "Eden", "paradise is not supported by this version; choose another name"),
        ],
    )
    def test_the_error_for_an_unsupported_value_names_a_remedy(
        self, key: str, value: str, reason: str
    ) -> None:
        assert _problems((key, value)) == (Problem(ProblemKind.UNSUPPORTED, key, value, "--set", reason),)

    def test_an_overridden_unsupported_value_is_accepted(self, tmp_path: Path) -> None:
        path = _file(tmp_path, "colour=BLACK\ngardenName=Eden\n")
        later = [Override("colour", "RED"), Override("gardenName", "Kew")]
        assert load(HouseSettings, path, later, known_keys).unused == {"gardenName": "Kew"}

    def test_all_problems_are_reported_at_once(self, tmp_path: Path) -> None:
        path = _file(tmp_path, "door=x\nlit=perhaps\nroof=flat\n")
        with pytest.raises(SettingsError) as caught:
            load(HouseSettings, path, [Override("layers", "0")], known_keys)
        assert {problem.source for problem in caught.value.problems} == {
            "house.conf line 1",
            "house.conf line 2",
            "house.conf line 3",
            "--set",
        }


class TestUpdates:
    def test_a_changeable_setting_takes_effect(self) -> None:
        configuration = _load()
        settings = configuration.settings
        change = configuration.update({"lit": "false", "layers": "2"})
        assert change == Change({"lit": ("true", "false")}, {})
        assert "lit" in change
        assert configuration.settings is settings
        assert settings.lit is False

    def test_listeners_are_called_only_for_changes(self) -> None:
        configuration = _load()
        heard: list[Change] = []
        configuration.on_change(heard.append)
        configuration.update({"lit": "true"})
        change = configuration.update({"layers": "3"})
        assert heard == [change]

    @pytest.mark.parametrize(
        ("changes", "kind"),
        [
            ({"roof": "flat"}, ProblemKind.UNKNOWN_KEY),
            ({"layers": "99"}, ProblemKind.BAD_VALUE),
            ({"gardenSize": "big"}, ProblemKind.BAD_VALUE),
            ({"colour": "BLACK"}, ProblemKind.UNSUPPORTED),
            ({"gardenName": "Eden"}, ProblemKind.UNSUPPORTED),
            ({"door": "81"}, ProblemKind.NEEDS_RESTART),
            ({"houseName": "there"}, ProblemKind.NEEDS_RESTART),
            ({"dryingTime": "7"}, ProblemKind.PROTECTED),
            ({"gardenName": "Kew"}, ProblemKind.PROTECTED),
        ],
    )
    def test_a_refusal_changes_nothing(self, changes: dict[str, str], kind: ProblemKind) -> None:
        configuration = _load()
        before = configuration.to_properties()
        with pytest.raises(SettingsError) as caught:
            configuration.update({"lit": "false", **changes}, protected={"dryingTime", "gardenName"})
        assert [problem.kind for problem in caught.value.problems] == [kind]
        assert configuration.to_properties() == before

    def test_a_value_equal_to_the_one_in_force_is_accepted(self) -> None:
        """Consoles send back the whole configuration with one value changed."""
        configuration = _load(("door", "5"), ("gardenSize", "4"))
        everything = configuration.to_properties() | {"lit": "false"}
        change = configuration.update(everything, protected={"door", "gardenSize"})
        assert list(change.changed) == ["lit"]
        assert not change.unused

    def test_apaches_other_keys_are_kept(self) -> None:
        configuration = _load()
        assert configuration.update({"gardenSize": "4"}) == Change({}, {"gardenSize": "4"})
        assert configuration.to_properties()["gardenSize"] == "4"


class TestPersisting:
    def test_only_the_lines_of_changed_keys_change(self, tmp_path: Path) -> None:
        path = _file(tmp_path, "# our house\nlit = true\ndoor=5\n")
        configuration = load(HouseSettings, path, (), known_keys)
        change = configuration.update({"lit": "false", "gardenSize": "4"})
        assert configuration.persist(change)
        assert path.read_text() == "# our house\nlit=false\ndoor=5\ngardenSize=4\n"

    def test_without_a_file_nothing_is_persisted(self) -> None:
        configuration = _load()
        assert not configuration.persist(configuration.update({"lit": "false"}))


class TestShowing:
    def test_properties_are_sorted_and_without_unset_ones(self) -> None:
        shown = _load(("gardenOpen", "false")).to_properties()
        assert list(shown) == sorted(shown)
        assert shown["gardenOpen"] == "false"
        assert shown["colour"] == "RED"
        assert "atticPath" not in shown

    def test_the_text_can_be_loaded(self, tmp_path: Path) -> None:
        first = _load(("door", "5"), ("gardenName", "Garten für alle"), ("cellarPath", "/a b"))
        again = load(HouseSettings, _file(tmp_path, first.to_text()), (), known_keys)
        assert again.settings == first.settings
        assert again.unused == first.unused

    def test_rows_mark_given_settings(self) -> None:
        rows = {row.info.key: row for row in _load(("door", "5")).describe()}
        assert (rows["door"].current, rows["door"].given) == ("5", True)
        assert (rows["steps"].current, rows["steps"].given) == ("3", False)
        assert rows["atticPath"].current == ""

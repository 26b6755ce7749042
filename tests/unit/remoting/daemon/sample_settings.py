"""A small daemon's settings and Apache's keys beside them, for the tests of this folder."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rmq_remoting.daemon.known_keys import KnownKey
from rmq_remoting.daemon.settings import (
    FilePath,
    JavaBoolean,
    JavaInt,
    JavaLong,
    JavaString,
    Milliseconds,
    OptionalPath,
    Port,
    SettingsGroup,
    live,
    setting,
)
from rmq_remoting.daemon.unsupported_settings import UnsupportedSetting, one_of


class Colour(enum.StrEnum):
    RED = "RED"
    GREEN = "GREEN"
    BLACK = "BLACK"


class PaintSettings(SettingsGroup):
    """Paint"""

    colour: Colour = live(Colour.RED, "colour", "Colour of the paint.")
    drying_time_ms: Milliseconds = live(500, "dryingTime", "Drying time.")
    layers: JavaInt = live(1, "layers", "Number of layers.", minimum=1, maximum=9)


class HouseSettings(PaintSettings):
    """House"""

    unsupported: ClassVar = (
        UnsupportedSetting("colour", one_of("BLACK"), "black paint", "use GREEN"),
        UnsupportedSetting("gardenName", one_of("Eden"), "paradise", "choose another name"),
        UnsupportedSetting("gate", one_of("locked"), "a lock", "build a wall"),
    )

    door: Port = setting(80, "door", "Number of the door.")
    lit: JavaBoolean = live(True, "lit", "Whether the light is on.")
    steps: JavaLong = setting(3, "steps", "Steps up to the door.")
    name: JavaString = setting(key="houseName", meaning="Name of the house.", default_factory=lambda: "here")
    cellar: FilePath = setting(Path("/cellar"), "cellarPath", "Folder of the cellar.")
    attic: OptionalPath = setting(None, "atticPath", "Folder of the attic.")
    layers: JavaInt = live(2, "layers", "Number of layers.", minimum=1, maximum=9)
    owners: JavaInt = setting(1, "owners", "Number of owners.", ours=True)

    def resolve(self) -> list[str]:
        if self.door == 666:
            raise ValueError("door=666 leads nowhere")
        return [*super().resolve(), "a note"] if self.colour is Colour.GREEN else super().resolve()


def known_keys() -> Mapping[str, KnownKey]:
    keys = [
        KnownKey("gardenSize", "int", "3", "Garden"),
        KnownKey("gardenOpen", "boolean", "true", "Garden"),
        KnownKey("gardenRatio", "double", "0.8", "Garden"),
        KnownKey("gardenName", "String", "", "Garden"),
        KnownKey("gate", "String", "open", "Garden"),
    ]
    return {key.key: key for key in keys}

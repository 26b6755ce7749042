"""Container files, parsed strictly: only the part of docker's and podman's syntax that is used here."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_KEYWORDS: Final = frozenset(
    {"FROM", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL"}
    | {"HEALTHCHECK", "ENTRYPOINT", "CMD"}
)
_LINE: Final = re.compile(r"([A-Z]+)\s+(\S.*)", re.DOTALL)


class ContainerfileError(Exception):
    """A line that docker or podman would refuse, or that this project does not use."""


@dataclass(frozen=True, slots=True)
class Instruction:
    keyword: str
    text: str

    def exec_form(self) -> list[str]:
        """The words of CMD ["a", "b"]. Raises ContainerfileError for the form that starts a shell."""
        try:
            words = json.loads(self.text)
        except ValueError:
            raise ContainerfileError(f"{self.keyword} {self.text}: a shell would get the signals") from None
        if not words or not all(isinstance(word, str) for word in words):
            raise ContainerfileError(f"{self.keyword} {self.text}: a list of words is needed")
        return [str(word) for word in words]


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY: paths of the build context, or of another stage."""

    sources: tuple[str, ...]
    target: str
    stage: str | None


@dataclass(slots=True)
class Stage:
    """The instructions between one FROM and the next."""

    image: str
    name: str | None
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, keyword: str) -> list[Instruction]:
        return [each for each in self.instructions if each.keyword == keyword]

    def last(self, keyword: str) -> Instruction:
        """The last instruction of a kind. Raises ContainerfileError if there is none."""
        if not (found := self.all(keyword)):
            raise ContainerfileError(f"stage {self.name or self.image} has no {keyword}")
        return found[-1]

    def copies(self) -> list[Copy]:
        return [_copy(each) for each in self.all("COPY")]

    def environment(self) -> dict[str, str]:
        """The names and values of ENV, with variables not replaced."""
        words = [word for each in self.all("ENV") for word in shlex.split(each.text)]
        return dict(word.split("=", 1) for word in words)

    def health_check(self) -> tuple[dict[str, str], list[str]]:
        """HEALTHCHECK's options and its command."""
        text = self.last("HEALTHCHECK").text
        options, found, command = text.partition("CMD ")
        if not found:
            raise ContainerfileError(f"HEALTHCHECK {text}: no CMD")
        pairs = dict(word.removeprefix("--").split("=", 1) for word in options.split())
        return pairs, Instruction("HEALTHCHECK CMD", command).exec_form()


def parse(path: Path) -> list[Stage]:
    """The stages of a file. Raises ContainerfileError."""
    stages: list[Stage] = []
    for logical in _logical_lines(path.read_text()):
        matched = _LINE.fullmatch(logical)
        if matched is None or matched[1] not in _KEYWORDS:
            raise ContainerfileError(f"not an instruction: {logical!r}")
        instruction = Instruction(matched[1], matched[2])
        if instruction.keyword == "FROM":
            stages.append(_stage(instruction, stages))
        elif not stages:
            raise ContainerfileError(f"{logical!r} comes before any FROM")
        else:
            stages[-1].instructions.append(instruction)
    if not stages:
        raise ContainerfileError(f"{path.name} has no FROM")
    _check_stages_copied_from(stages)
    return stages


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#") or (not stripped and not pending):
            continue
        if not stripped:
            raise ContainerfileError(f"an empty line inside of {pending!r}")
        pending += stripped.removesuffix("\\")
        if not stripped.endswith("\\"):
            lines.append(pending)
            pending = ""
    if pending:
        raise ContainerfileError(f"the file ends inside of {pending!r}")
    return lines


def _stage(instruction: Instruction, before: list[Stage]) -> Stage:
    words = instruction.text.split()
    if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "AS"):
        raise ContainerfileError(f"FROM {instruction.text}: FROM IMAGE or FROM IMAGE AS NAME")
    name = words[2] if len(words) == 3 else None
    if name is not None and name in {stage.name for stage in before}:
        raise ContainerfileError(f"two stages have the name {name}")
    return Stage(words[0], name)


def _copy(instruction: Instruction) -> Copy:
    words = instruction.text.split()
    options = [word for word in words if word.startswith("--")]
    *sources, target = [word for word in words if not word.startswith("--")]
    if not sources or (len(sources) > 1 and not target.endswith("/")):
        raise ContainerfileError(f"COPY {instruction.text}: several sources need a folder, ending in /")
    stages = [option.removeprefix("--from=") for option in options]
    if len(stages) > 1 or any(stage.startswith("--") for stage in stages):
        raise ContainerfileError(f"COPY {instruction.text}: --from is the one option used here")
    return Copy(tuple(sources), target, stages[0] if stages else None)


def _check_stages_copied_from(stages: list[Stage]) -> None:
    known: set[str | None] = set()
    for stage in stages:
        for copy in stage.copies():
            if copy.stage is not None and copy.stage not in known:
                raise ContainerfileError(f"COPY --from={copy.stage}: there is no stage of this name before")
        known.add(stage.name)

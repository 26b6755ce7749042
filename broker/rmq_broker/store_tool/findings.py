"""What a check found: errors, and notes on what is normal but worth knowing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing, and where; `kind` is a fixed name, its part before the dot says in what it was found."""

    kind: str
    place: str
    text: str
    is_error: bool

    def line(self) -> str:
        """For people."""
        return f"{'error' if self.is_error else 'note '}  {self.kind:<22} {self.place}: {self.text}"


@dataclass(slots=True)
class Report:
    """All of a check: at most `limit` findings of each kind are kept, the rest is counted."""

    directory: str
    strict: bool = False  # notes on what a broker would put right by itself count as errors
    limit: int = DEFAULT_LIMIT
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # what was looked at
    kinds: Counter[str] = field(default_factory=Counter)  # findings by kind
    errors: int = 0
    facts: dict[str, Any] = field(default_factory=dict)  # state of the directory

    @property
    def is_clean(self) -> bool:
        """Whether no error was found."""
        return self.errors == 0

    def error(self, kind: str, place: str, text: str) -> None:
        """Something is damaged."""
        self._add(Finding(kind, place, text, True))

    def unfinished(self, kind: str, place: str, text: str) -> None:
        """Normal after a crash or while a broker runs, which would put it right: an error if strict."""
        self._add(Finding(kind, place, text, self.strict))

    def note(self, kind: str, place: str, text: str) -> None:
        """Worth knowing, and never an error."""
        self._add(Finding(kind, place, text, False))

    def of_kind(self, kind: str) -> list[Finding]:
        """The findings of one kind that were kept."""
        return [finding for finding in self.findings if finding.kind == kind]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "directory": self.directory,
            "clean": self.is_clean,
            "errors": self.errors,
            "state": self.facts,
            "checked": dict(self.counts),
            "findings": [asdict(finding) for finding in self.findings],
            "findingsByKind": dict(self.kinds),
        }

    def lines(self) -> list[str]:
        """For people: findings, what was left out, counts, the verdict."""
        lines = [finding.line() for finding in self.findings]
        for kind, count in self.kinds.items():
            shown = len(self.of_kind(kind))
            if count > shown:
                lines.append(f"       {kind:<22} {count - shown} more of these")
        lines += [f"{name}: {value}" for name, value in self.facts.items()]
        lines.append("checked: " + ", ".join(f"{count} {name}" for name, count in self.counts.items()))
        verdict = "clean" if self.is_clean else f"DAMAGED, {self.errors} errors"
        lines.append(f"{self.directory}: {verdict}")
        return lines

    def _add(self, finding: Finding) -> None:
        self.kinds[finding.kind] += 1
        self.errors += finding.is_error
        if self.kinds[finding.kind] <= self.limit:
            self.findings.append(finding)

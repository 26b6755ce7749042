"""Result of a check: errors, and notes on normal conditions that are worth knowing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

DEFAULT_LIMIT: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding and its place; `kind` is a fixed name, whose part before the dot names the kind of file."""

    kind: str
    place: str
    text: str
    is_error: bool

    def line(self) -> str:
        """Format the finding for people."""
        return f"{'error' if self.is_error else 'note '}  {self.kind:<22} {self.place}: {self.text}"


@dataclass(slots=True)
class Report:
    """All findings of a check: at most `limit` of each kind are kept, the others are counted."""

    directory: str
    strict: bool = False  # defects that a broker repairs by itself count as errors
    limit: int = DEFAULT_LIMIT
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # checked items by name
    kinds: Counter[str] = field(default_factory=Counter)  # findings by kind
    errors: int = 0
    facts: dict[str, Any] = field(default_factory=dict)  # state of the directory

    @property
    def is_clean(self) -> bool:
        """Whether no error was found."""
        return self.errors == 0

    def error(self, kind: str, place: str, text: str) -> None:
        """Report damage."""
        self._add(Finding(kind, place, text, True))

    def recoverable(self, kind: str, place: str, text: str) -> None:
        """Report a defect that is normal after a crash or while a broker runs, and that a broker repairs.

        It is an error only if the check is strict.
        """
        self._add(Finding(kind, place, text, self.strict))

    def note(self, kind: str, place: str, text: str) -> None:
        """Report a condition that is never an error."""
        self._add(Finding(kind, place, text, False))

    def of_kind(self, kind: str) -> list[Finding]:
        """Return the kept findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs."""
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
        """Return the report for people: findings, number of omitted findings, counts, verdict."""
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

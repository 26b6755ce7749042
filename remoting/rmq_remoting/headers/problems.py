"""Errors of headers with a codec of their own: determined only after decoding has failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..errors import HeaderError, shown

# Names of integer fields, with their least and largest value.
IntegerFields = Sequence[tuple[Sequence[str], int, int]]


def header_error(
    header: str,
    fields: Mapping[str, str],
    texts: Sequence[str],
    integers: IntegerFields,
    optional: Collection[str] = (),
) -> HeaderError:
    """Return an error with all problems; `texts` are required, and so are integers that are not optional."""
    problems = [f"required field {name} is missing" for name in texts if name not in fields]
    for names, lowest, highest in integers:
        for name in names:
            text = fields.get(name)
            if text is None:
                if name not in optional:
                    problems.append(f"required field {name} is missing")
                continue
            try:
                fits = lowest <= int(text) <= highest
            except ValueError:
                fits = False
            if not fits:
                problems.append(f"{name} must be an integer from {lowest} to {highest}, got {shown(text)}")
    return HeaderError(f"{header}: {'; '.join(problems)}")

"""Names of columns: taken from users, and written so that Spark takes them as they are."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.errors import InvalidInputError


def names_of(role: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Take one column name or several."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not name:
            raise InvalidInputError(f"{role} takes column names, got {name!r}; give text, as in {role}='user'")
    return names


def quoted(name: str) -> str:
    """Write a column name so that Spark takes it as it is, dots and all."""
    return f"`{name.replace('`', '``')}`"

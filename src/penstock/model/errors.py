"""Errors that name what is wrong, why it matters and how to mend it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from numbers import Integral

# A name becomes a folder, and file systems take 255 bytes, from which some are left for what is added.
LONGEST_NAME = 200


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose."""


class InvalidInputError(PenstockError, ValueError):
    """A value given by the user cannot be worked with."""


class PlanLogError(PenstockError):
    """The plan log or the ledger on disk cannot be trusted."""


class LeaseLostError(PlanLogError):
    """Another driver has taken the checkpoint over; this one has stopped, and is not to be started again."""


class StoreError(PenstockError, OSError):
    """A store beyond the local disk is not reached, or refuses what it is asked."""


class SpillError(PenstockError):
    """Rows cannot be spilled, or what was spilled of a batch is not all of it."""


class OperatorError(PenstockError):
    """An operator of the user raised, or returned what cannot be used."""


class EnvironmentMissingError(PenstockError):
    """Something outside Python that Penstock needs is missing or too old."""


class TargetMissedError(PenstockError):
    """An answer is further off than its target allows, and the query was to stop then."""


class NotSupportedError(PenstockError, NotImplementedError):
    """What was asked for cannot work here."""


def require_fraction(name: str, value: float, *, meaning: str) -> None:
    """Refuse anything but a number in [0, 1].

    >>> require_fraction("keep", 1.5, meaning="the share of tuples that survive")
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: keep must be in [0, 1], got 1.5; it is the share of tuples that survive
    """
    if not is_number(value) or math.isnan(value) or not 0 <= value <= 1:
        raise InvalidInputError(f"{name} must be in [0, 1], got {value!r}; it is {meaning}")


def require_positive(name: str, value: float, *, meaning: str) -> None:
    """Refuse anything but a finite number above zero."""
    if not is_number(value) or not math.isfinite(value) or value <= 0:
        raise InvalidInputError(f"{name} must be finite and above 0, got {value!r}; it is {meaning}")


def require_not_negative(name: str, value: float, *, meaning: str) -> None:
    """Refuse anything but a finite number of at least zero."""
    if not is_number(value) or not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{name} must be finite and at least 0, got {value!r}; it is {meaning}")


def require_share(name: str, value: float, *, meaning: str) -> None:
    """Refuse anything but a number strictly between 0 and 1."""
    if not is_number(value) or not 0 < value < 1:
        raise InvalidInputError(f"{name} must be in (0, 1), got {value!r}; it is {meaning}")


def require_whole(name: str, value: int, *, least: int | None = 1, most: int | None = None, meaning: str) -> None:
    """Refuse anything but a whole number within bounds.

    >>> require_whole("tasks", 2.5, meaning="the tasks that read")
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: tasks must be a whole number of at least 1, got 2.5; it is the tasks that \
read
    """
    bounds = {" of at least ": least, " of at most ": most}
    wanted = "a whole number" + " and".join(f"{word}{bound}" for word, bound in bounds.items() if bound is not None)
    given: object = value
    whole = isinstance(given, Integral) and not isinstance(given, bool)
    if not whole or (least is not None and value < least) or (most is not None and value > most):
        raise InvalidInputError(f"{name} must be {wanted}, got {value!r}; it is {meaning}")


def require_seed(seed: int) -> None:
    """Refuse anything but a whole number that leaves room, in Spark's 64 bits, for the next ones."""
    require_whole("seed", seed, least=-(1 << 62), most=1 << 62, meaning="what draws start from, such as 7")


def require_flag(name: str, value: bool, *, meaning: str) -> None:
    """Refuse anything but True and False."""
    given: object = value
    if not isinstance(given, bool):
        raise InvalidInputError(f"{name} must be True or False, got {value!r}; it is {meaning}")


def require_text(name: str, value: object, *, meaning: str) -> None:
    """Refuse anything but text that says something."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{name} must be text and not empty, got {value!r}; it is {meaning}")


def require_choice(name: str, value: object, choices: Collection[object], *, meaning: str) -> None:
    """Refuse anything but one of a few values."""
    # Not every value can be hashed: compared one by one.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        *others, last = map(repr, choices)
        raise InvalidInputError(f"{name} must be {', '.join(others)} or {last}, got {value!r}; it is {meaning}")


def require_function(name: str, value: object, *, meaning: str) -> None:
    """Refuse anything but a function."""
    if not callable(value):
        raise InvalidInputError(f"{name} must be a function, got {value!r}; it is {meaning}")


def require_kind(name: str, value: object, kind: type | tuple[type, ...], *, called: str, example: str) -> None:
    """Refuse anything but a value of some type; of a class, say that a value of it is meant.

    >>> require_kind("target", float, float, called="a number", example="0.5")
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: target must be a number, got the class float; give a value of it, as in 0.5
    """
    if isinstance(value, type):
        raise InvalidInputError(
            f"{name} must be {called}, got the class {value.__name__}; give a value of it, as in {example}"
        )
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} must be {called}, got {value!r}; give one, as in {example}")


def require_name(name: str) -> None:
    """Refuse a name that cannot stand for one folder within another.

    >>> require_name("../../elsewhere")
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidInputError: name must be letters, digits, '_', '-' and '.', and begin with a letter \
or digit, got '../../elsewhere'; it names a folder
    """
    given: object = name
    if not isinstance(given, str) or not re.fullmatch(r"\w[\w.-]*", given):
        raise InvalidInputError(
            f"name must be letters, digits, '_', '-' and '.', and begin with a letter or digit, got {name!r}; it names "
            "a folder"
        )
    if len(given.encode()) > LONGEST_NAME:
        raise InvalidInputError(
            f"name must be at most {LONGEST_NAME} bytes long, got {len(given.encode())} ({given[:40]!r}...); it names "
            "a folder, and file systems take no longer names"
        )


def is_number(value: object) -> bool:
    """Whether a value is a number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)

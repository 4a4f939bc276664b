"""Errors that name what is wrong, why it matters and how to mend it."""

from __future__ import annotations

import math


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
    if not _is_number(value) or math.isnan(value) or not 0 <= value <= 1:
        raise InvalidInputError(f"{name} must be in [0, 1], got {value!r}; it is {meaning}")


def require_positive(name: str, value: float, *, meaning: str) -> None:
    """Refuse anything but a finite number above zero."""
    if not _is_number(value) or not math.isfinite(value) or value <= 0:
        raise InvalidInputError(f"{name} must be finite and above 0, got {value!r}; it is {meaning}")


def require_not_negative(name: str, value: float, *, meaning: str) -> None:
    """Refuse anything but a finite number of at least zero."""
    if not _is_number(value) or not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{name} must be finite and at least 0, got {value!r}; it is {meaning}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

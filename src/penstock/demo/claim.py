"""What is to be shown, and whether it was."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that is said of a figure or of a run, held against what was seen.

    >>> Claim.at_most("error of the worst query", 0.04, 0.05)
    Claim(text='error of the worst query', value=0.04, bound='<= 0.05', held=True)
    """

    text: str
    value: float
    bound: str
    held: bool

    @staticmethod
    def at_most(text: str, value: float, bound: float) -> Claim:
        """Claim that the value is no larger."""
        return Claim(text, float(value), f"<= {bound:g}", bool(value <= bound))

    @staticmethod
    def at_least(text: str, value: float, bound: float) -> Claim:
        """Claim that the value is no smaller."""
        return Claim(text, float(value), f">= {bound:g}", bool(value >= bound))

    @staticmethod
    def equal(text: str, value: float, expected: float, *, tolerance: float) -> Claim:
        """Claim that the value is the expected one, but for the tolerance."""
        held = bool(abs(value - expected) <= tolerance)
        return Claim(text, float(value), f"= {expected:g} ± {tolerance:g}", held)

"""What a figure comes down to: its settings, its curves, and what they are to show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.demo.claim import Claim


@dataclass(frozen=True, slots=True)
class Series:
    """One curve, or one group of bars if ``x`` holds names; series with the same labels are drawn on the same axes."""

    name: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float, ...]
    x_label: str = ""
    y_label: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a paper, computed again."""

    figure: str
    settings: Mapping[str, Any]
    series: tuple[Series, ...]
    claims: tuple[Claim, ...]

    @property
    def held(self) -> bool:
        """Whether all claims are held."""
        return all(claim.held for claim in self.claims)

    @property
    def seeds(self) -> dict[str, Any]:
        """The settings that fix what is drawn at random."""
        return {name: value for name, value in self.settings.items() if "seed" in name}

    def to_json(self) -> dict[str, Any]:
        """Lay the figure out for ``json.dumps``; what is not a finite number becomes null, as JSON knows no NaN."""
        return {
            "figure": self.figure,
            "settings": dict(self.settings),
            "series": [
                {"name": series.name, "x": [_plain(x) for x in series.x], "y": [_plain(y) for y in series.y]}
                for series in self.series
            ],
            "claims": [
                {"text": claim.text, "value": _plain(claim.value), "bound": claim.bound, "held": claim.held}
                for claim in self.claims
            ],
        }


def _plain(value: float | str) -> float | str | None:
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else None

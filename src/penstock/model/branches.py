"""Outputs behind a shared part of a query, each with a drop of its own: their costs, and what their answers rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.model.errors import InvalidInputError, require_not_negative


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One output behind the shared operators, as learned from the running query.

    Attributes
    ----------
    name
        Of the output.
    share
        Tuples that reach it per tuple that passes the shared operators, while its own drop keeps all.
    seconds_per_tuple
        Work per tuple that its drop lets through.
    answer_tuples
        Tuples that one answer (a window, or a group in a window) rests on while nothing is shed.
    mean, standard_deviation
        Of the values that are summed; 1 and 0 for a count.
    """

    name: str
    share: float
    seconds_per_tuple: float
    answer_tuples: float
    mean: float = 1.0
    standard_deviation: float = 0.0

    def __post_init__(self) -> None:
        of = f"of output {self.name!r}"
        require_not_negative(f"share {of}", self.share, meaning="the tuples that reach it per tuple of the shared part")
        require_not_negative(f"seconds_per_tuple {of}", self.seconds_per_tuple, meaning="the work that a tuple takes")
        require_not_negative(f"answer_tuples {of}", self.answer_tuples, meaning="the tuples that an answer rests on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """A shared part and the outputs behind it.

    >>> trips = Branch(name="trips", share=1.0, seconds_per_tuple=2e-5, answer_tuples=10_000)
    >>> tips = Branch(name="tips", share=0.1, seconds_per_tuple=1e-4, answer_tuples=1_000)
    >>> round(Branches(shared_seconds=1e-5, outputs=(trips, tips)).seconds_per_tuple * 1e6, 6)
    40.0
    """

    shared_seconds: float
    outputs: tuple[Branch, ...]

    @property
    def seconds_per_tuple(self) -> float:
        """Work that a tuple of the source takes while no drop is in its way."""
        return self.shared_seconds + sum(branch.share * branch.seconds_per_tuple for branch in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """Convert to what JSON can hold."""
        return asdict(self)

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> Branches:
        """Restore what :meth:`to_dict` gave."""
        outputs = tuple(Branch(**branch) for branch in fields["outputs"])
        return Branches(shared_seconds=fields["shared_seconds"], outputs=outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCount:
    """What one batch showed of an output.

    Attributes
    ----------
    offered, kept, shed
        Rows that reached the output's drop, those it let through, and those it took out; each is counted.
    weight, total, squares
        Sums over the rows kept: of their weights, weighted values, and weighted squares of values.
    groups
        Groups that they fall into; 1 where the output has none.
    """

    offered: int
    kept: int
    shed: int
    weight: float
    total: float
    squares: float
    groups: float = 1.0

    def __post_init__(self) -> None:
        for name in ("offered", "kept", "shed"):
            require_not_negative(name, getattr(self, name), meaning="a count")
        if self.offered != self.kept + self.shed:
            raise InvalidInputError(
                f"an output does not balance: offered {self.offered} != kept {self.kept} + shed {self.shed}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCounts:
    """What one batch showed of all outputs.

    ``first_event_at`` and ``last_event_at`` are the earliest and latest event time of its tuples, in seconds since the
    epoch; None for a batch without any. ``window_seconds`` is the length of the windows.
    """

    first_event_at: float | None
    last_event_at: float | None
    window_seconds: float
    outputs: Mapping[str, BranchCount]

    def drops(self) -> dict[str, dict[str, int]]:
        """Count, for the ledger, what reached the drop of each output, and what it kept and shed."""
        return {
            name: {"offered": counted.offered, "kept": counted.kept, "shed": counted.shed}
            for name, counted in self.outputs.items()
        }

"""Sample each output of a running query so that the worst relative error of all is least ([Sampling03])."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.branches import Branch, Branches
from penstock.model.error_target import MaxError, require_confidence
from penstock.model.errors import InvalidInputError, require_fraction, require_kind
from penstock.model.load import Load
from penstock.model.plan import Plan
from penstock.policy.sampling import Diagram, Operator, Query, Source, effective_keep, least_relative_error, place

# Beyond this ratio of deviation to mean a sum is so near to 0 that no sample of any size holds a relative error.
NEAR_ZERO = 100.0
SOURCE, SHARED = "source", "shared part"
_TARGETS = "{'trips': MaxError(relative=0.05)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastError:
    """Under overload, give every output the keep rate at which all have the same, least relative error.

    The plan's common rate is the drop before the shared part of the query; its rate by output is the effective rate of
    each. Until the outputs are known it keeps what fits, as :class:`~penstock.policy.baseline.Uniform` does.

    Parameters
    ----------
    targets
        By output, how wrong its answers may be. The errors are then equal in proportion to these; an output without one
        counts as one with a target of 10 %.
    confidence
        Share of answers that are to be within the error, for outputs without a target.
    min_keep
        No rate falls below this.

    Examples
    --------
    Three times too much. A rare output with a heavy tail needs its tuples more than a plain count does:

    >>> from penstock.model.load import Cost
    >>> branches = Branches(
    ...     shared_seconds=1e-5,
    ...     outputs=(
    ...         Branch(name="trips", share=1.0, seconds_per_tuple=1e-4, answer_tuples=100_000),
    ...         Branch(
    ...             name="tips",
    ...             share=0.02,
    ...             seconds_per_tuple=1e-4,
    ...             answer_tuples=2_000,
    ...             mean=3.0,
    ...             standard_deviation=6.0,
    ...         ),
    ...     ),
    ... )
    >>> load = Load(
    ...     offered_tuples=50_000,
    ...     cost=Cost(fixed_seconds=0.0, kept_seconds=branches.seconds_per_tuple),
    ...     available_seconds=2.5,
    ...     headroom=0.8,
    ...     branches=branches,
    ... )
    >>> plan = LeastError().decide(load)
    >>> {name: round(keep, 2) for name, keep in plan.key_keep.items()}, round(plan.keep, 2)
    ({'trips': 0.28, 'tips': 1.0}, 1.0)
    """

    targets: Mapping[str, MaxError] = field(default_factory=dict)
    confidence: float = 0.95
    min_keep: float = 0.01

    DEFAULT_RELATIVE = 0.1

    def __post_init__(self) -> None:
        require_kind("targets", self.targets, Mapping, called="a mapping of outputs to targets", example=_TARGETS)
        for name, target in self.targets.items():
            require_kind(f"targets[{name!r}]", target, MaxError, called="a MaxError", example="MaxError(relative=0.05)")
        require_confidence(self.confidence)
        require_fraction("min_keep", self.min_keep, meaning="the least share of tuples to keep")
        if self.min_keep == 0:
            raise InvalidInputError("min_keep must be above 0; an output that gets no tuple has no answer to bound")

    def decide(self, load: Load) -> Plan:
        """Solve the load equation for the least error, and place the rates."""
        if not load.overloaded:
            return Plan.keep_all(load.explain())
        branches = load.branches
        if branches is None or not branches.outputs:
            return Plan(
                keep=max(load.fitting_keep(), self.min_keep),
                reason=f"{load.explain()}; the outputs are not known yet",
            )
        cost = load.cost
        spare_seconds = (
            load.headroom * load.available_seconds - cost.fixed_seconds - cost.shed_seconds * load.offered_tuples
        )
        diagram = self._diagram(branches, load.offered_tuples)
        if spare_seconds <= 0:
            rates = dict.fromkeys((branch.name for branch in branches.outputs), self.min_keep)
            return Plan(keep=self.min_keep, key_keep=rates, reason=f"{load.explain()}; not even the dropping fits")
        miss = 1 - self.confidence
        error = least_relative_error(diagram, miss_probability=miss, capacity=spare_seconds)
        rates = {
            query.name: max(self.min_keep, effective_keep(query, relative_error=error, miss_probability=miss))
            for query in diagram.queries
        }
        placed = place(diagram, rates)
        return Plan(
            keep=placed[SOURCE, SHARED],
            key_keep=rates,
            reason=f"{load.explain()}; {self._explain(branches, error, rates)}",
        )

    def _diagram(self, branches: Branches, offered_tuples: float) -> Diagram:
        """Lay the query out; time is counted in batches, so that the rate is the size of the batch."""
        outputs = tuple(
            Operator(
                name=f"filter of {branch.name}",
                seconds_per_tuple=0.0,
                selectivity=branch.share,
                children=(
                    Operator(
                        name=f"work of {branch.name}",
                        seconds_per_tuple=branch.seconds_per_tuple,
                        children=(self._query(branch),),
                    ),
                ),
            )
            for branch in branches.outputs
        )
        shared = Operator(name=SHARED, seconds_per_tuple=branches.shared_seconds, children=outputs)
        return Diagram((Source(name=SOURCE, tuples_per_second=offered_tuples, children=(shared,)),))

    def _query(self, branch: Branch) -> Query:
        """State an output's wish in the terms of the paper.

        The error that a rate gives goes with 1 / sqrt(tuples / ln(2 / δ)). So a target and a confidence of its own
        amount to windows of another size: then one error, in units of the targets, serves all.
        """
        target = self._target(branch.name)
        own, common = (math.log(2 / (1 - confidence)) for confidence in (target.confidence, self.confidence))
        tuples = max(branch.answer_tuples, 1.0) * target.relative**2 * common / own
        mean, deviation = branch.mean, branch.standard_deviation
        if abs(mean) * NEAR_ZERO <= deviation or mean == 0:
            mean, deviation = 1.0, 0.0
        return Query(name=branch.name, window_tuples=tuples, mean=mean, standard_deviation=deviation)

    def _target(self, name: str) -> MaxError:
        return self.targets.get(name) or MaxError(relative=self.DEFAULT_RELATIVE, confidence=self.confidence)

    def _explain(self, branches: Branches, error: float, rates: Mapping[str, float]) -> str:
        shown = ", ".join(
            f"{name} {keep:.3f} ({f'within {error * self._target(name).relative:.2%}' if keep < 1 else 'exact'})"
            for name, keep in rates.items()
        )
        near_zero = [b.name for b in branches.outputs if abs(b.mean) * NEAR_ZERO <= b.standard_deviation or b.mean == 0]
        notes = [f"least error at keep {shown}"]
        if any(name in self.targets for name in rates) and error > 1:
            notes.append(f"targets are missed by a factor of {error:.2f}")
        if near_zero:
            notes.append(f"{', '.join(near_zero)}: sums around 0 have no relative error, sampled as counts")
        return "; ".join(notes)

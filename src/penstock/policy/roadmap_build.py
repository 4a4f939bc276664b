"""Work out the rows of a road map: part by part where nothing is shared, then merged by ratio."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from penstock.model.errors import InvalidInputError, require_not_negative, require_positive
from penstock.model.network import Network
from penstock.policy.place_graph import Floats, PlaceGraph, graph_arrays
from penstock.policy.roadmap_kernel import build_rows
from penstock.policy.static_rule import static_order

Rule = Literal["marginal", "static"]
NO_ORDER = np.empty((0, 3))


def check_options(network: Network, *, step: float, drop_seconds: float, rule: str) -> None:
    """Refuse steps that are no steps, or drops that would cost more than they save."""
    if not 0 < step <= 1:
        raise InvalidInputError(f"step must be in (0, 1], got {step!r}; it is how far a share falls from row to row")
    require_not_negative("drop_seconds", drop_seconds, meaning="the cost of a drop per tuple it sees")
    if rule not in ("marginal", "static"):
        raise InvalidInputError(f"rule must be 'marginal' or 'static', got {rule!r}; 'static' is the paper's")
    if drop_seconds > 0:
        least = least_step(network, drop_seconds)
        if step <= least:
            raise InvalidInputError(
                f"step must exceed drop_seconds over the least load coefficient, {least:g}, got {step!r}; "
                "a smaller drop costs more than it saves"
            )


def rows_and_changes(graph: PlaceGraph, *, step: float, drop_seconds: float, rule: str) -> tuple[Floats, Floats]:
    """Rows (savings, utility lost, ratio, part) and changes (row, place, target), in order."""
    rows, changes = [], []
    for number, nodes in enumerate(graph.components()):
        arrays: Any = graph_arrays(graph, nodes)
        order = static_order(arrays) if rule == "static" else NO_ORDER
        build: Any = build_rows
        made, changed = build(*arrays.values(), step, drop_seconds, order)
        if len(made):
            made[:, 3] = number
            changed[:, 1] = np.array(nodes)[changed[:, 1].astype(np.int64)]
            rows.append(made)
            changes.append(changed)
    return _merge(rows, changes)


def least_step(network: Network, drop_seconds: float) -> float:
    """Smallest drop that pays for itself everywhere: D over the least load coefficient (STEP_SIZE must exceed it)."""
    require_positive("drop_seconds", drop_seconds, meaning="the cost of a drop per tuple it sees")
    coefficients = [found for found in network.coefficients().values() if found > 0]
    return drop_seconds / min(coefficients) if coefficients else 0.0


def _merge(rows: list[Floats], changes: list[Floats]) -> tuple[Floats, Floats]:
    """Put the rows of parts that share nothing into one order, by ratio."""
    if not rows:
        return np.empty((0, 4)), np.empty((0, 3))
    # Within a part the order stands, also where a ratio falls again.
    keys = np.concatenate([np.maximum.accumulate(part[:, 2]) for part in rows])
    order = np.argsort(keys, kind="stable")
    gained = np.concatenate([np.diff(part[:, 0], prepend=0.0) for part in rows])[order]
    lost = np.concatenate([np.diff(part[:, 1], prepend=0.0) for part in rows])[order]
    first = np.cumsum([0, *(len(part) for part in rows[:-1])])
    new_index = np.empty(len(order), dtype=np.int64)
    new_index[order] = np.arange(len(order))
    moved = np.concatenate([part + np.array([start, 0, 0]) for part, start in zip(changes, first, strict=True)])
    moved[:, 0] = new_index[moved[:, 0].astype(np.int64)]
    moved = moved[np.argsort(moved[:, 0], kind="stable")]
    together = np.concatenate(rows)[order]
    together[:, 0], together[:, 1] = np.cumsum(gained), np.cumsum(lost)
    return together, moved

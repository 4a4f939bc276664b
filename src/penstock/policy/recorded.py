"""Write policies that decide row by row as plain settings, and read them back.

A plan of such a policy says nothing of single rows: whoever judges a batch again needs the rule itself. So the entry of
the batch in the plan log holds the kind of the policy and its parameters. Code cannot be held there. A function that a
policy was given, and a policy of the user's own, are recorded by name; a batch that they decided is judged again with
those of the same name that the query is started with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any, TypeVar

from penstock.model.errors import PenstockError, PlanLogError
from penstock.policy.baseline import KeepAll, Uniform
from penstock.policy.rows.constraint import AverageLatency, MaximumLatency, WindowLatency
from penstock.policy.rows.density import Density
from penstock.policy.rows.load_aware import BaseLine, FullKnowledge, Learning, LoadAware, StrawMan
from penstock.policy.strata.concept import ConceptDriven

Recorded = TypeVar("Recorded")

KINDS: Mapping[str, Callable[..., Any]] = {
    kind.__name__: kind
    for kind in (
        ConceptDriven, KeepAll, Uniform,
        LoadAware, Density, StrawMan, FullKnowledge, BaseLine, Learning, AverageLatency, MaximumLatency, WindowLatency
    )
}  # fmt: skip


def to_settings(value: object) -> dict[str, Any]:
    """Write a policy or a constraint as what JSON can hold.

    >>> to_settings(AverageLatency(seconds=2.0))
    {'kind': 'AverageLatency', 'seconds': 2.0}
    >>> to_settings(Density(min_keep=0.1))["learning"]["kind"]
    'Learning'
    """
    names = [each.name for each in fields(value)] if is_dataclass(value) else sorted(getattr(value, "__dict__", ()))
    return {"kind": _kind_of(value), **{name: _plain(getattr(value, name)) for name in names}}


def from_settings(settings: Mapping[str, Any], *, now: Recorded, of: str) -> Recorded:
    """Read back what :func:`to_settings` gave.

    Parameters
    ----------
    settings
        What was recorded.
    now
        What the query is started with; taken as it is where it is the same, and for its functions.
    of
        What was decided by it, for errors, as in ``"batch 7"``.

    >>> from_settings(to_settings(Density(min_keep=0.1)), now=LoadAware(), of="batch 7") == Density(min_keep=0.1)
    True
    """
    if settings == to_settings(now):
        return now
    kind = KINDS.get(settings["kind"])
    if kind is None:
        raise PlanLogError(
            f"{of} was decided by {settings['kind']} with {_told(settings)}, which the plan log names and cannot make "
            f"again, and the query is started with {_kind_of(now)}; start it with the former until that batch is "
            "committed, or start from a new checkpoint"
        )
    given = {name: _restored(name, each, now=now, of=of) for name, each in settings.items() if name != "kind"}
    try:
        restored: Recorded = kind(**given)
    except (TypeError, PenstockError) as cause:
        raise PlanLogError(
            f"{of} was decided by {settings['kind']}, and its settings in the plan log are none of that kind "
            f"({cause}); go on with the Penstock that wrote them, or start from a new checkpoint"
        ) from cause
    return restored


def _restored(name: str, recorded: Any, *, now: object, of: str) -> Any:
    if not isinstance(recorded, Mapping):
        return recorded
    if "function" not in recorded:
        return from_settings(recorded, now=None, of=of)
    function = getattr(now, name, None)
    if _plain(function) != recorded:
        raise PlanLogError(
            f"{of} was decided with {name}={recorded['function']}, which the plan log only names, and the policy that "
            f"the query is started with has another one or none; give it that function until the batch is committed, "
            "or start from a new checkpoint"
        )
    return function


def _plain(value: object) -> Any:
    """Write the value of a setting as what JSON can hold; code, and what else it cannot hold, by name."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return to_settings(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return {"function": _name_of(value if hasattr(value, "__qualname__") else type(value))}


def _kind_of(value: object) -> str:
    kind = type(value)
    name: str = kind.__name__
    return name if KINDS.get(name) is kind else _name_of(kind)


def _name_of(code: Any) -> str:
    return f"{code.__module__}.{code.__qualname__}"


def _told(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={each}" for name, each in settings.items() if name != "kind") or "no settings"

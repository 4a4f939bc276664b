"""User-defined functions over sliding event-time windows, shed by concept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

import pandas as pd
from pyspark.sql import types as T

from penstock.control.governor import Governor
from penstock.model.errors import InvalidInputError, require_kind, require_positive
from penstock.policy.contract import Policy
from penstock.policy.strata.concept import ConceptDriven
from penstock.policy.strata.windows import require_join_settings, require_window_settings
from penstock.spark.names import names_of, weight_of
from penstock.spark.spill.options import Spill, to_spill
from penstock.spark.store.paths import Location
from penstock.spark.windows.answer import OneStream, TwoStreams
from penstock.spark.windows.shedder import Windows, WindowShedder
from penstock.spark.windows.span import Span


def shed_windows(
    function: Callable[[pd.DataFrame], pd.DataFrame],
    returns: str | T.StructType,
    *,
    time: str,
    size_seconds: float,
    slide_seconds: float | None = None,
    latency_seconds: float,
    checkpoint: Location,
    key: str | Sequence[str] = (),
    value: str | None = None,
    row_id: str | Sequence[str] = (),
    policy: Policy | None = None,
    weight: str = "weight",
    buckets: int | None = None,
    late_share: float = 0.05,
    probe_tuples: int = 20_000,
    grace_seconds: float = 60.0,
    seed: int = 0,
    name: str = "windows",
    spill: Location | Spill | None = None,
) -> WindowShedder:
    """Apply a function to what fits of every window, shed by concept, so that answers leave in time.

    Rows wait in columnar blocks until the watermark passes the end of their window. The plan of that batch says what
    share of its windows fits, the concept of a window gives each group its quota of it, one scan picks the survivors,
    and the function gets them with their weights. Rows of one group always come together in one call.

    Parameters
    ----------
    function
        Gets the survivors of a window as a pandas DataFrame, their weights in the column ``weight``; returns a
        DataFrame. Called once per window and bucket; without ``key``, once per window.
    returns
        Columns of what the function returns, as DDL text or a StructType.
    time
        Timestamp column that assigns rows to windows.
    size_seconds, slide_seconds
        Length of the windows, and how far apart they start: tumbling if not given. Edges are those of Spark's
        ``window(time, size, slide)``.
    latency_seconds
        Target for the answers, from the arrival of the row whose watermark ends a window to the commit.
    checkpoint
        Folder of the query's checkpoint; blocks, plan log and ledger live in it.
    key
        Column or columns whose values make the groups; none for a scalar aggregate.
    value
        Numeric column whose spread ``ConceptDriven(rule="neyman")`` goes by.
    row_id
        Column or columns that identify a row; their hash decides who survives. By default all columns.
    policy
        :class:`~penstock.policy.strata.concept.ConceptDriven` by default: what fits, in quotas by group. Where a
        policy says itself how much to keep, as ``ConceptDriven(keep=0.03)``, no window gets more than that.
        ``Uniform()`` and ``KeepAll()`` go the same way, for comparison.
    weight
        Name of the weight column that the function sees. If the stream has it already, weights multiply.
    buckets
        How many parts of a window are worked on in parallel, up to 8; by default the number of shuffle partitions. A
        query keeps the number it was first started with.
    late_share, probe_tuples, grace_seconds
        See :class:`~penstock.control.governor.Governor`; rows are those of windows here.
    seed
        Another seed keeps other rows.
    name
        Names the plan log within the checkpoint.
    spill
        Folder in which the rows that a window sheds are stored as Parquet when it is answered, or a
        :class:`~penstock.spark.spill.options.Spill` that says more; see :func:`backfill_windows`.

    Returns
    -------
    WindowShedder
        For ``events.transform(windows)``, on a stream with a watermark; select the columns that the function needs
        before, for all are buffered. The answers have ``window`` (start, end), the columns of ``returns``, and
        ``shed``: what became of the rows of the window in this bucket (``offered``, ``kept``, ``groups``,
        ``missing_groups``, ``missing_tuples``; rows too ``late`` for any window since the last answer), how the
        concept moved since the window before (``overlap``, ``distance``: by its groups, without ``key`` by its values;
        null for the first window, and without both), and the ``seconds`` the answer took. Write them in append mode,
        and start the query with ``windows.start(writer)``.
    """
    policy = ConceptDriven() if policy is None else policy
    require_window_settings(policy, value=value)
    windows = Windows.of(
        OneStream,
        function,
        returns,
        policy=policy,
        time=time,
        span=_span(size_seconds, slide_seconds),
        key=key,
        value=value,
        row_id=row_id,
        weight=weight,
        buckets=buckets,
        seed=seed,
    )
    governor = _governor(latency_seconds, late_share, probe_tuples, grace_seconds)
    return WindowShedder(windows, governor=governor, checkpoint=checkpoint, name=name, spill=to_spill(spill))


def shed_join(
    function: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame],
    returns: str | T.StructType,
    *,
    time: str,
    size_seconds: float,
    slide_seconds: float | None = None,
    latency_seconds: float,
    checkpoint: Location,
    key: str | Sequence[str],
    value: str | None = None,
    row_id: str | Sequence[str] = (),
    policy: Policy | None = None,
    weight: str = "weight",
    buckets: int | None = None,
    late_share: float = 0.05,
    probe_tuples: int = 20_000,
    grace_seconds: float = 60.0,
    seed: int = 0,
    name: str = "windows",
    spill: Location | Spill | None = None,
) -> WindowShedder:
    """Join two streams window by window on a key, after shedding both by what they have in common.

    Keys that one side only has are shed wholly; the others share the budget by the pairs they make. The function gets
    the survivors of both sides (see :func:`join_pairs`); the weight of a pair is the product of its weights. For
    ``left.transform(windows, right)``.

    Parameters are those of :func:`shed_windows`; ``time``, ``key``, ``value`` and ``row_id`` name columns that both
    sides have (``value`` may be missing from one of them).
    """
    policy = ConceptDriven() if policy is None else policy
    require_join_settings(policy)
    windows = Windows.of(
        TwoStreams,
        function,
        returns,
        policy=policy,
        time=time,
        span=_span(size_seconds, slide_seconds),
        key=key,
        value=value,
        row_id=row_id,
        weight=weight,
        buckets=buckets,
        seed=seed,
    )
    if not windows.key:
        raise InvalidInputError("a join needs a key; name the column or columns that both streams have: key='user'")
    governor = _governor(latency_seconds, late_share, probe_tuples, grace_seconds)
    return WindowShedder(windows, governor=governor, checkpoint=checkpoint, name=name, spill=to_spill(spill))


def _governor(latency_seconds: float, late_share: float, probe_tuples: int, grace_seconds: float) -> Governor:
    return Governor(
        latency_seconds=latency_seconds,
        late_share=late_share,
        probe_tuples=probe_tuples,
        grace_seconds=grace_seconds,
    )


def join_pairs(
    left: pd.DataFrame, right: pd.DataFrame, *, on: str | Sequence[str], weight: str = "weight"
) -> pd.DataFrame:
    """Pair the survivors of both sides, with the weight of each pair; for use in the function of :func:`shed_join`.

    >>> left = pd.DataFrame({"user": ["a", "a"], "weight": [2.0, 2.0]})
    >>> right = pd.DataFrame({"user": ["a", "b"], "weight": [5.0, 1.0]})
    >>> float(join_pairs(left, right, on="user")["weight"].sum())
    20.0
    """
    keys, weight = names_of("on", on), weight_of(weight, beside=(on,) if isinstance(on, str) else on)
    if not keys:
        raise InvalidInputError("on names no column; name those that both sides have, as in on='user'")
    for side, rows in (("left", left), ("right", right)):
        require_kind(side, rows, pd.DataFrame, called="a pandas DataFrame", example="the survivors of that side")
        for name in (*keys, weight):
            if name not in rows.columns:
                raise InvalidInputError(
                    f"{side} has no column {name!r}; it has {', '.join(map(str, rows.columns))}. Name what both sides "
                    "have, and the weight as shed_join was given it"
                )
    pairs = left.merge(right, on=list(keys), suffixes=("_left", "_right"))
    pairs[weight] = pairs.pop(f"{weight}_left") * pairs.pop(f"{weight}_right")
    return pairs


def _span(size_seconds: float, slide_seconds: float | None) -> Span:
    size = _micros("size_seconds", size_seconds)
    slide = size if slide_seconds is None else _micros("slide_seconds", slide_seconds)
    if slide > size:
        raise InvalidInputError(
            f"slide_seconds must be at most size_seconds, got {slide_seconds!r} and {size_seconds!r}; "
            "rows between the windows would belong to none"
        )
    return Span(size_micros=size, slide_micros=slide, pane_micros=gcd(size, slide))


def _micros(name: str, seconds: float) -> int:
    require_positive(name, seconds, meaning="what shapes the windows")
    if (micros := round(seconds * 1e6)) % 1_000 or not micros:
        raise InvalidInputError(f"{name} must be whole milliseconds, got {seconds!r}; it is what shapes the windows")
    return micros

"""The concept of the same batch: count its groups in a first pass, shed by their quotas in the second."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.model.errors import PlanLogError
from penstock.model.plan import ByGroup, Plan
from penstock.policy.strata.allocation import Quotas, allocate
from penstock.policy.strata.groups import GroupConcept
from penstock.policy.strata.selection import batch_thresholds
from penstock.spark.judge.marking import HASH, Marking
from penstock.spark.judge.sampling import NO_KEY, WHOLE, KeyTable, hashed_group, table_literal, threshold_of
from penstock.spark.names import quoted


def mark_by_concept(marking: Marking, events: DataFrame, plan: Plan, by_group: ByGroup) -> DataFrame:
    """Mark the rows of a batch by the quotas of its own groups.

    The same rows give the same quotas by the same rule, which is part of the plan. So a batch that is replayed sheds
    the same rows without any rate being stored.
    """
    quotas, least_hashes = count_groups(marking, events, plan, by_group)
    thresholds = batch_thresholds(quotas, least_hashes)
    keyless = quotas.concept.keys == NO_KEY
    without_key = int(thresholds[keyless][0]) if keyless.any() else threshold_of(plan.keep)
    # Groups that are kept whole need no place in the table.
    listed = (thresholds < WHOLE) & ~keyless
    table = KeyTable.of(quotas.concept.keys[listed], thresholds[listed])
    common = F.when(F.col(HASH).isNull(), F.lit(without_key)).otherwise(F.lit(WHOLE))
    return marking.mark(events, threshold=common, table=table_literal(events.sparkSession, table))


def count_groups(
    marking: Marking, events: DataFrame, plan: Plan, by_group: ByGroup
) -> tuple[Quotas, np.ndarray[Any, np.dtype[np.int64]]]:
    """The first pass: groups of the batch, their quotas, and the least hash of each."""
    keys = [F.col(quoted(name)) for name in marking.key]
    columns = [
        hashed_group(keys).alias("key"),
        marking.drawn(events).alias("hash"),
    ]
    found = [F.count(F.lit(1)).alias("tuples"), F.min("hash").alias("least")]
    if by_group.rule == "neyman" and by_group.value is not None:
        if by_group.value not in events.columns:
            raise PlanLogError(
                f"the batch was planned to be shed by the spread of the column {by_group.value!r}, which the stream "
                f"does not have any more; it has {', '.join(events.columns)}. Bring it back until the batch is "
                "committed, or start from a new checkpoint"
            )
        value = F.col(quoted(by_group.value)).cast("double")
        # What is not a number leaves a group's moments as if it were not there: infinite less infinite is NaN too.
        columns.append(F.when(value - value == 0.0, value).alias("value"))
        moments = {"mean": F.avg("value"), "variance": F.var_pop("value")}
        found += [F.coalesce(moment, F.lit(0.0)).alias(name) for name, moment in moments.items()]
    # Sorted here: Spark would count the groups once more to find out how to sort them.
    counted = events.select(*columns).groupBy("key").agg(*found).toArrow().sort_by("key")
    counts = _ints(counted, "tuples")
    valued = "mean" in counted.column_names
    concept = GroupConcept(
        keys=_ints(counted, "key"),
        counts=counts,
        means=counted["mean"].to_numpy() if valued else np.zeros(len(counts)),
        squares=counted["variance"].to_numpy() * counts if valued else np.zeros(len(counts)),
    )
    quotas = allocate(concept, plan.keep * concept.tuples, rule=by_group.rule, wins=by_group.wins)
    return quotas, _ints(counted, "least")


def _ints(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: np.ndarray[Any, np.dtype[np.int64]] = table[name].to_numpy().astype(np.int64)
    return numbers

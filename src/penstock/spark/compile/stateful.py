"""The parts of a network that keep state, in one SQL statement over rows that are computed once.

Spark computes a common table expression that is used several times once only if it is not deterministic; it then puts
an exchange behind it that all uses read. So the expression gets a random column, which nobody reads.
"""

from __future__ import annotations

import math
import uuid
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from penstock.spark.compile.layout import LEFT, RIGHT, Layout
from penstock.spark.compile.stages import PORT, ROW_HASH, TIME, WEIGHT
from penstock.spark.compile.steps import AggregateStep, JoinStep
from penstock.spark.names import quoted
from penstock.spark.session import is_remote

if TYPE_CHECKING:
    from penstock.spark.network import Network

KEY, VALUE = "__key", "__value"
MOMENTS = (
    "__start", "__end", KEY, "__rows", "__total", "__weight_variance", "__total_variance", "__weight_peak",
    "__total_peak",
)  # fmt: skip
_NO_MOMENTS = (
    "CAST(NULL AS TIMESTAMP) AS __start, CAST(NULL AS TIMESTAMP) AS __end, CAST(NULL AS STRING) AS __key, "
    "CAST(NULL AS BIGINT) AS __rows, CAST(NULL AS DOUBLE) AS __total, CAST(NULL AS DOUBLE) AS __weight_variance, "
    "CAST(NULL AS DOUBLE) AS __total_variance, CAST(NULL AS DOUBLE) AS __weight_peak, "
    "CAST(NULL AS DOUBLE) AS __total_peak"
)


def branch(tagged: DataFrame, network: Network, layout: Layout) -> DataFrame:
    """Aggregate, join and pass on what the stages have tagged."""
    spark = tagged.sparkSession
    steps = network.steps.steps
    columns = [name for name in tagged.columns if not name.startswith("__")]
    joins = {name: step for name, step in steps.items() if isinstance(step, JoinStep)}
    aggregates = {name: step for name, step in steps.items() if isinstance(step, AggregateStep)}
    paired = [f"right_{name}" for name in columns] if joins else []
    types = {field.name: field.dataType.simpleString() for field in tagged.schema.fields}
    nulls = [f"CAST(NULL AS {types[name]}) AS {quoted(f'right_{name}')}" for name in columns] if joins else []
    rows = [name for name in layout.ports if name in _row_outputs(network, layout)]
    parts = []
    if rows:
        own = ", ".join([*map(quoted, columns), *nulls, PORT, WEIGHT, ROW_HASH, _NO_MOMENTS])
        parts.append(f"SELECT {own} FROM shared WHERE {PORT} IN ({_numbers(rows, layout)})")
    if aggregates:
        parts.append(_windows(columns, nulls, types, aggregates, layout))
    for name, step in joins.items():
        parts.append(_pairs(columns, paired, name, step, layout))
    if is_remote(spark):
        # Spark Connect looks names up when the query starts, when a temporary view is gone: the frame goes along.
        text = " UNION ALL ".join(parts).replace("{", "{{").replace("}", "}}")
        return spark.sql("WITH shared AS (SELECT *, rand(1) AS __once FROM {tagged}) " + text, tagged=tagged)
    view = f"penstock_{uuid.uuid4().hex}"
    tagged.createOrReplaceTempView(view)
    try:
        return spark.sql(f"WITH shared AS (SELECT *, rand(1) AS __once FROM {view}) " + " UNION ALL ".join(parts))
    finally:
        spark.catalog.dropTempView(view)


def _row_outputs(network: Network, layout: Layout) -> set[str]:
    steps = network.steps.steps
    return {
        output.name
        for output in network.model.outputs
        if output.name not in layout.below_join and not isinstance(steps.get(output.input), AggregateStep)
    }


def _windows(
    columns: list[str], nulls: list[str], types: dict[str, str], aggregates: dict[str, AggregateStep], layout: Layout
) -> str:
    """One aggregation by output, pane and key for all windows, with weighted moments."""
    pane = math.gcd(*(step.slide_seconds for step in aggregates.values()))
    own = ", ".join([*(f"CAST(NULL AS {types[name]}) AS {quoted(name)}" for name in columns), *nulls])
    # The variances are those of Horvitz and Thompson's estimates, for rows that survive independently of each other.
    moments = ", ".join(["pane.start AS __start", "pane.end AS __end", *MOMENTS[2:]])
    # The peaks are the largest single contributions to them: where one tuple decides, no interval is to be relied on.
    spread = f"{WEIGHT} * ({WEIGHT} - 1)"
    grouped = (
        f"SELECT window({TIME}, '{pane} seconds') AS pane, {PORT}, {KEY}, count(1) AS __rows, "
        f"sum({WEIGHT}) AS __weights, sum({WEIGHT} * {VALUE}) AS __total, "
        f"sum({spread}) AS __weight_variance, sum({spread} * {VALUE} * {VALUE}) AS __total_variance, "
        f"max({spread}) AS __weight_peak, max({spread} * {VALUE} * {VALUE}) AS __total_peak "
        f"FROM shared WHERE {PORT} IN ({_numbers(list(aggregates), layout)}) "
        f"GROUP BY window({TIME}, '{pane} seconds'), {PORT}, {KEY}"
    )
    listed = ", ".join(
        part for part in (own, PORT, f"__weights AS {WEIGHT}", f"CAST(0 AS BIGINT) AS {ROW_HASH}", moments) if part
    )
    return f"SELECT {listed} FROM ({grouped})"


def _pairs(columns: list[str], paired: list[str], name: str, step: JoinStep, layout: Layout) -> str:
    """Spark's own join of two streams, bounded in time on both sides."""
    own = [f"l.{quoted(c)}" for c in columns]
    other = [f"r.{quoted(c)} AS {quoted(p)}" for c, p in zip(columns, paired, strict=True)]
    made = [
        f"{layout.ports[name]} AS {PORT}",
        f"l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}",
        f"xxhash64(l.{ROW_HASH}, r.{ROW_HASH}) AS {ROW_HASH}",
        _NO_MOMENTS,
    ]
    close = f"INTERVAL {step.within_seconds:f} SECONDS"
    on = " AND ".join(
        [
            *(f"l.{quoted(c)} = r.{quoted(c)}" for c in step.on),
            f"l.{TIME} >= r.{TIME} - {close}",
            f"l.{TIME} <= r.{TIME} + {close}",
        ]
    )
    left = f"(SELECT * FROM shared WHERE {PORT} = {layout.ports[name + LEFT]})"
    right = f"(SELECT * FROM shared WHERE {PORT} = {layout.ports[name + RIGHT]})"
    return f"SELECT {', '.join([*own, *other, *made])} FROM {left} l JOIN {right} r ON {on}"


def _numbers(names: list[str], layout: Layout) -> str:
    return ", ".join(str(layout.ports[name]) for name in names)

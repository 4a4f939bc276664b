"""Compile a network to one streaming query: one scan, every operator once, one aggregation for all windows.

Rows pass the stateless operators in stages (:mod:`penstock.spark.compile.stages`), one for each union that they meet on
their way, and come out tagged with the ports they reached: an output, the pane aggregation that all window outputs
share, or a side of a join. Where there is more than one such branch, Spark would run everything above once for each.
A common table expression that is not deterministic keeps it from that: such a one is computed once, behind an exchange
that all branches read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.model.errors import InvalidInputError
from penstock.model.network import Network as Model
from penstock.model.network import Operator, Output, Source
from penstock.model.quality import ValueGraph
from penstock.spark.compile.ground import Ground, streaming_ground
from penstock.spark.compile.layout import LEFT, RIGHT, Layout, layout_of, planner_of
from penstock.spark.compile.stages import ARRIVAL, PLAN, PORT, ROW_HASH, TIME, TO, WEIGHT, Delivery, Stage, any_of
from penstock.spark.compile.stateful import KEY, MOMENTS, VALUE, branch
from penstock.spark.compile.steps import AggregateStep, JoinStep, OutputStep
from penstock.spark.judge.sampling import row_hash, stage_seed
from penstock.spark.names import quoted
from penstock.spark.spill.network_writer import spill_stage

if TYPE_CHECKING:
    from penstock.spark.network import Network


def compile_network(network: Network, ground: Ground | None = None) -> DataFrame:
    """Make the DataFrame of all answers: a streaming one, unless the ground says otherwise."""
    layout = layout_of(network)
    ground = ground or streaming_ground(network, layout)
    frame = ground.only(branch(_stages(network, layout, ground), network, layout))
    if layout.below_join:
        frame = _below_joins(frame, network, layout, ground)
    return _answers(frame, network, layout, ground)


def passed_rows(network: Network, ground: Ground) -> DataFrame:
    """Pass all stateless operators above joins and windows, and no more: enough to count what was dropped there."""
    return _stages(network, layout_of(network), ground)


def _stages(network: Network, layout: Layout, ground: Ground) -> DataFrame:
    """Pass all stateless operators above joins and windows."""
    frame = ground.with_plan(source_rows(network, layout, ground.frames))
    model = network.model
    columns = [c for c in frame.columns if c not in (PORT, WEIGHT)]
    for level in range(max(layout.levels.values()) + 1):
        stage = Stage(network.model, network.steps, layout.arcs, layout.lanes, layout.ports, frame)
        entries = [
            node.name
            for node in model.order
            if layout.levels[node.name] == level
            and (isinstance(node, Source) or (isinstance(node, Operator) and node.kind == "union"))
        ]
        here = {name for name, found in layout.levels.items() if found == level and name not in layout.below_join}
        through = [
            n.name for n in model.order if isinstance(n, Operator) and n.kind in ("filter", "map") and n.name in here
        ]
        for name in entries:
            stage.enter(name)
        for name in entries:
            if level:
                stage.counts[f"present:{name}"] = F.count_if(F.col(PORT) == layout.ports[name])
        ends = [node.name for node in model.order if _ends(node, layout, entries)]
        deliveries = stage.run(through, ends)
        name = f"{network.name}-{level}" if level else network.name
        counted = _counted(stage, deliveries, ground, name=name, level=level)
        going = [_element(delivery, network, layout) for delivery in deliveries]
        if level:
            arrived = [layout.ports[name] for name in entries]
            going.append(F.when(~F.col(PORT).isin(arrived), F.struct(F.col(PORT), F.col(WEIGHT))))
        made = [c for c in stage.frame.columns if not c.startswith("__") and c not in columns]
        columns += made
        exploded = counted.select(*map(quoted, columns), F.explode(F.array_compact(F.array(*going))).alias(TO))
        to = (F.col(f"{TO}.{PORT}").alias(PORT), F.col(f"{TO}.{WEIGHT}").alias(WEIGHT))
        frame = exploded.select(*map(quoted, columns), *to)
    aggregates = {n: step for n, step in network.steps.steps.items() if isinstance(step, AggregateStep)}
    if aggregates:
        keys = {n: key_of(step) for n, step in aggregates.items()}
        values = {n: value_of(step) for n, step in aggregates.items()}
        frame = frame.withColumns({KEY: _by_port(layout, keys), VALUE: _by_port(layout, values)})
    return frame.drop(PLAN, ARRIVAL)


def key_of(step: AggregateStep) -> Column:
    """The key of a row, as text."""
    return F.to_json(F.struct(*map(quoted, step.by))) if step.by else F.lit("{}")


def value_of(step: AggregateStep) -> Column:
    """What a row adds to the total."""
    return F.lit(1.0) if step.of is None else step.of.cast("double")


def has_target(network: Model, aggregate: str) -> bool:
    """Whether an output of these windows has a target for its error."""
    return any(output.input == aggregate and output.error is not None for output in network.outputs)


def _ends(node: object, layout: Layout, entries: Sequence[str]) -> bool:
    """Whether rows may leave a stage at this node."""
    if isinstance(node, Output):
        return node.name not in layout.below_join
    if isinstance(node, Operator):
        return node.kind in ("aggregate", "join", "union") and node.name not in entries
    return False


def source_rows(network: Network, layout: Layout, rows: Mapping[str, DataFrame]) -> DataFrame:
    """Put the rows of all sources together, each with its port, the hash that decides its fate, and its times."""
    frames = []
    salt = planner_of(network).log.salt()
    for name, source in network.steps.sources.items():
        ids = [F.col(quoted(column)) for column in source.row_id]
        frame = rows[name].withColumns(
            {
                PORT: F.lit(layout.ports[name]),
                WEIGHT: F.lit(1.0),
                ROW_HASH: row_hash(ids, stage_seed(salt, name, seed=network.seed)),
                ARRIVAL: (F.col(quoted(source.arrival)) if source.arrival else F.lit(None)).cast("timestamp"),
            }
        )
        if source.event_time is not None:
            frame = frame.withColumn(TIME, F.col(quoted(source.event_time))).withWatermark(TIME, source.watermark)
        frames.append(frame)
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _counted(
    stage: Stage, deliveries: Sequence[Delivery], ground: Ground, *, name: str, level: int | None
) -> DataFrame:
    """Count what happened in a stage, and store what it dropped, where that is asked for."""
    # Also where nobody wants the counts there is one: Spark pushes filters past the explode that follows, and has lost
    # columns on the way (INTERNAL_ERROR_ATTRIBUTE_NOT_FOUND); past what is observed it pushes nothing.
    if ground.observe is None:
        counted = stage.frame.observe(name, F.count(F.lit(1)).alias("rows"))
    else:
        counted = ground.observe(stage.frame, name, _metrics(stage, deliveries, level))
    return counted if ground.spill is None else spill_stage(counted, stage, ground.spill, level=level)


def _metrics(stage: Stage, deliveries: Sequence[Delivery], level: int | None) -> list[Column]:
    counted = [column.alias(name) for name, column in stage.counts.items()]
    for delivery in deliveries:
        place = f"{delivery.above}>{delivery.port}"
        counted.append(F.count_if(delivery.flag).alias(f"reached:{place}"))
        counted.append(F.sum(F.when(delivery.flag, F.col(WEIGHT) * delivery.factor)).alias(f"weight:{place}"))
        node = next(n for n in stage.network.nodes if n.name == delivery.port)
        if isinstance(node, Output) and node.value is not None:
            worth = _worth(node.value, F.col(quoted(str(stage.steps.value_column))).cast("double"))
            counted.append(F.sum(F.when(delivery.flag, worth)).alias(f"worth:{place}"))
        step = stage.steps.steps.get(delivery.port)
        if isinstance(step, AggregateStep) and has_target(stage.network, delivery.port):
            weight, value = F.col(WEIGHT) * delivery.factor, value_of(step)
            counted += [
                F.approx_count_distinct(F.when(delivery.flag, key_of(step))).alias(f"keys:{place}"),
                F.sum(F.when(delivery.flag, weight * value)).alias(f"total:{place}"),
                F.sum(F.when(delivery.flag, weight * value * value)).alias(f"squares:{place}"),
            ]
    if level == 0:
        micros = F.unix_micros(F.col(ARRIVAL))
        counted += [
            F.count(F.lit(1)).alias("offered"),
            F.count_if(any_of(stage.first)).alias("kept"),
            F.count_if(~any_of(stage.first)).alias("shed"),
            F.min(micros).alias("oldest_micros"),
            F.avg(micros).alias("mean_micros"),
        ]
    return counted


def _worth(graph: ValueGraph, value: Column) -> Column:
    """Utility of each row by its value."""
    found = F.lit(0.0)
    for low, high, at_low, at_high in graph.pieces:
        slope = (at_high - at_low) / (high - low)
        found = F.when((value >= low) & (value < high), F.lit(at_low) + (value - low) * slope).otherwise(found)
    return found


def _element(delivery: Delivery, network: Network, layout: Layout) -> Column:
    """What a row that reached a port goes on as."""
    port = delivery.port
    step = network.steps.steps.get(port)
    if isinstance(step, JoinStep):
        node = next(n for n in network.model.operators if n.name == port)
        port += LEFT if node.inputs[0] == delivery.above else RIGHT
    weight = (F.col(WEIGHT) * delivery.factor).alias(WEIGHT)
    return F.when(delivery.flag, F.struct(F.lit(layout.ports[port]).alias(PORT), weight))


def _below_joins(frame: DataFrame, network: Network, layout: Layout, ground: Ground) -> DataFrame:
    """Pass what lies below joins; other rows are through already."""
    stage = Stage(network.model, network.steps, layout.arcs, {}, layout.ports, ground.with_plan(frame))
    joins = [name for name, step in network.steps.steps.items() if isinstance(step, JoinStep)]
    for name in joins:
        stage.enter(name)
        stage.counts[f"present:{name}"] = F.count_if(F.col(PORT) == layout.ports[name])
    order = [node for node in network.model.order if node.name in layout.below_join and node.name not in joins]
    deliveries = stage.run(
        [node.name for node in order if isinstance(node, Operator)],
        [node.name for node in order if isinstance(node, Output)],
    )
    counted = _counted(stage, deliveries, ground, name=f"{network.name}-joins", level=None)
    going = [_element(delivery, network, layout) for delivery in deliveries]
    arrived = [layout.ports[name] for name in joins]
    going.append(F.when(~F.col(PORT).isin(arrived), F.struct(F.col(PORT), F.col(WEIGHT))))
    columns = [quoted(c) for c in stage.frame.columns if not c.startswith("__")]
    exploded = counted.select(*columns, *MOMENTS, F.explode(F.array_compact(F.array(*going))).alias(TO))
    return exploded.select(*columns, *MOMENTS, F.col(f"{TO}.{PORT}").alias(PORT), F.col(f"{TO}.{WEIGHT}").alias(WEIGHT))


def _answers(frame: DataFrame, network: Network, layout: Layout, ground: Ground) -> DataFrame:
    """Lay the answers of all outputs out alike."""
    steps = network.steps.steps
    names = {o.name: o.name for o in network.model.outputs if not isinstance(steps.get(o.input), AggregateStep)}
    names |= {o.input: o.name for o in network.model.outputs if isinstance(steps.get(o.input), AggregateStep)}
    rows = [name for name in names if isinstance(steps[name], OutputStep)]
    own = F.col(WEIGHT) * (F.col(WEIGHT) - 1)
    row = _by_port(layout, {name: _json(frame, network, name, ground) for name in rows}) if rows else F.lit(None)
    return frame.select(
        _by_port(layout, {name: F.lit(output) for name, output in names.items()}).alias("output"),
        F.col("__start").alias("start"),
        F.col("__end").alias("end"),
        F.col(KEY).alias("key"),
        F.coalesce(F.col("__rows"), F.lit(1)).cast("bigint").alias("rows"),
        F.col(WEIGHT).alias("weight"),
        F.col("__total").alias("total"),
        F.coalesce(F.col("__weight_variance"), own).alias("weight_variance"),
        F.col("__total_variance").alias("total_variance"),
        F.col("__weight_peak").alias("weight_peak"),
        F.col("__total_peak").alias("total_peak"),
        row.cast("string").alias("row"),
    )


def _json(frame: DataFrame, network: Network, name: str, ground: Ground) -> Column:
    step = network.steps.steps[name]
    assert isinstance(step, OutputStep)  # noqa: S101 - outputs have such steps
    columns = step.columns or tuple(c for c in frame.columns if not c.startswith("__") and c not in ground.hidden)
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InvalidInputError(f"output {name!r} wants the column {missing[0]!r}, which the network does not have")
    return F.to_json(F.struct(*map(quoted, columns)))


def _by_port(layout: Layout, by_name: Mapping[str, Column]) -> Column:
    found: Column | None = None
    for name, column in by_name.items():
        case = F.col(PORT) == layout.ports[name]
        found = F.when(case, column) if found is None else found.when(case, column)
    assert found is not None  # noqa: S101 - there is at least one name
    return found

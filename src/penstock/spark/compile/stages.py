"""One pass of rows through operators that need no state: flags instead of branches, so that each runs once.

Every row carries the port where it enters, and flags say which operators it passes. A drop compares a hash of the row
with the threshold that the plan of the batch has for the arc, or the row's value with its ranges. At the end the row
goes on to each port that it reaches, with its weight: one over the product of the keep rates on its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.model.network import OUTSIDE, Arc, Network, Operator, Output, Source, inputs_of
from penstock.spark.compile.steps import FilterStep, MapStep, Steps
from penstock.spark.judge.sampling import WHOLE, row_hash
from penstock.spark.names import quoted

PORT, WEIGHT, ROW_HASH, PLAN, TO, TIME, ARRIVAL = (
    "__port", "__weight", "__row_hash", "__plan", "__to", "__time", "__arrival",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Rows that leave a stage at some port: under which flag, and with what factor on their weight."""

    port: str
    above: str
    flag: Column
    factor: Column


@dataclass(slots=True)
class Stage:
    """Builds the flags of the operators between some ports and the next ones.

    ``drops`` says of each drop, by the number of its arc, which rows it takes out; ``crossed`` lists, by node, the
    drops that a row has passed in this stage when it gets there.
    """

    network: Network
    steps: Steps
    arcs: Sequence[Arc]
    lanes: Mapping[Arc, Sequence[tuple[float, float]]]
    ports: Mapping[str, int]
    frame: DataFrame
    counts: dict[str, Column] = field(default_factory=dict)
    first: list[Column] = field(default_factory=list)
    drops: dict[int, Column] = field(default_factory=dict)
    crossed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _present: dict[str, Column] = field(default_factory=dict)
    _factor: dict[str, Column] = field(default_factory=dict)

    def enter(self, name: str) -> None:
        """Let the rows of a port in."""
        self._put(f"__in{len(self._present)}", F.col(PORT) == self.ports[name], name)
        self._factor[name] = F.lit(1.0)
        self.crossed[name] = ()
        if isinstance(self._node(name), Source):
            self._pass_input(name)

    def run(self, through: Sequence[str], ends: Sequence[str]) -> list[Delivery]:
        """Pass the named filters and maps, in order; return what reaches the ends."""
        for name in through:
            self._operate(name)
        found = []
        for end in ends:
            node = self._node(end)
            for above in inputs_of(node):
                if above in self._present:
                    flag, factor = self._cross((above, end))
                    found.append(Delivery(port=end, above=above, flag=flag, factor=factor))
        return found

    def _pass_input(self, name: str) -> None:
        """The drop in front of a source."""
        self.counts[f"present:{name}"] = F.count_if(self._present[name])
        flag, factor = self._drop((OUTSIDE, name), self._present[name])
        self._present[name], self._factor[name] = flag, factor
        self.crossed[name] = (self._number((OUTSIDE, name)),)

    def _operate(self, name: str) -> None:
        node, step = self._node(name), self.steps.steps[name]
        assert isinstance(node, Operator)  # noqa: S101 - only operators have steps that run here
        arc = (node.inputs[0], name)
        reached, factor = self._cross(arc)
        self._factor[name] = factor
        crossed = self.crossed[arc[0]]
        self.crossed[name] = (*crossed, self._number(arc)) if arc in self.arcs else crossed
        if isinstance(step, FilterStep):
            # CASE, not AND: Spark may work out both sides of an AND ahead, for rows that never come here.
            passed = F.coalesce(F.when(reached, step.condition), F.lit(False))
            self._put(f"__passed{len(self._present)}", passed, name)
        elif isinstance(step, MapStep):
            made = {column: F.when(reached, made_of) for column, made_of in step.columns.items()}
            self.frame = self.frame.withColumns(made)
            self._present[name] = reached
        self.counts[f"present:{name}"] = F.count_if(self._present[name])

    def _cross(self, arc: Arc) -> tuple[Column, Column]:
        flag, factor = self._present[arc[0]], self._factor[arc[0]]
        if arc in self.arcs:
            flag, own = self._drop(arc, flag)
            factor = factor * own
        if isinstance(self._node(arc[0]), Source):
            self.first.append(flag)
        return flag, factor

    def _drop(self, arc: Arc, flag: Column) -> tuple[Column, Column]:
        number = self._number(arc)
        threshold = F.col(PLAN).getField("thresholds").getItem(number)
        # Every arc draws on its own, or drops in a row on one path would keep the same rows.
        drawn = row_hash([F.col(ROW_HASH)], number)
        # The whole range is compared first: while nothing is shed, no row is hashed.
        survives = (threshold >= WHOLE) | (drawn < threshold)
        if self.steps.value_column is not None:
            value = F.col(quoted(self.steps.value_column)).cast("double")
            ranges = F.col(PLAN).getField("ranges").getItem(number)
            inside = F.exists(ranges, lambda r: (value >= r.getField("low")) & (value < r.getField("high")))
            survives = survives & ((F.size(ranges) == 0) | ~F.coalesce(inside, F.lit(False)))
        name = f"__kept{number}"
        for lane, (low, high) in enumerate(self.lanes.get(arc, ())):
            value = F.col(quoted(str(self.steps.value_column))).cast("double")
            self.counts[f"lane:{number}:{lane}"] = F.count_if(flag & (value >= low) & (value < high))
        self.frame = self.frame.withColumn(name, F.coalesce(F.when(flag, survives), F.lit(False)))
        self.counts[f"kept:{number}"] = F.count_if(F.col(name))
        self.drops[number] = flag & ~F.col(name)
        self.counts[f"shed:{number}"] = F.count_if(self.drops[number])
        return F.col(name), F.lit(float(WHOLE)) / F.greatest(threshold, F.lit(1)).cast("double")

    def _put(self, column: str, flag: Column, name: str) -> None:
        self.frame = self.frame.withColumn(column, flag)
        self._present[name] = F.col(column)

    def _number(self, arc: Arc) -> int:
        return list(self.arcs).index(arc)

    def _node(self, name: str) -> Source | Operator | Output:
        return next(node for node in self.network.nodes if node.name == name)


def any_of(flags: Sequence[Column]) -> Column:
    """Whether one of the flags is set."""
    return reduce(lambda one, other: one | other, flags) if flags else F.lit(False)

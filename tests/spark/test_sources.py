"""A query with two sources, of which one feeds the shedder."""

import pytest
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import penstock as ps
from tests.spark.streams import finish_batches, numbers

pytestmark = pytest.mark.spark

# Taken for rows of ours, a burst would take minutes.
ROWS, THEIRS, BURST = 5_000, 5_000, 5_000_000
QUIET_BATCHES, BURST_BATCHES = 8, 3


def other_source(spark):
    """A source that moves by about 5,000 units a batch, then by 5,000,000 for three batches; it has a row a batch."""

    class OtherReader(DataSourceStreamReader):
        def __init__(self):
            self._calls = self._units = 0

        def initialOffset(self):  # noqa: N802 - Spark calls it so
            return {"tuples": 0}

        def latestOffset(self, *_):  # noqa: N802
            self._calls += 1
            bursts = QUIET_BATCHES <= self._calls - 1 < QUIET_BATCHES + BURST_BATCHES
            self._units += BURST if bursts else THEIRS + 37 * (self._calls % 5)
            return {"tuples": self._units}

        def partitions(self, start, end):
            return [InputPartition(end["tuples"])]

        def read(self, partition):
            yield (partition.value,)

    class OtherSource(DataSource):
        @classmethod
        def name(cls):
            return "other"

        def schema(self):
            return "value BIGINT"

        def streamReader(self, schema):  # noqa: N802
            return OtherReader()

    spark.dataSource.register(OtherSource)
    return spark.readStream.format("other").load()


def dear(rows):
    """Rows that take some 50 microseconds each."""
    work = F.aggregate(
        F.sequence(F.lit(1), F.lit(80)),
        F.lit(""),
        lambda digest, x: F.sha2(F.concat(digest, x.cast("string"), F.col("value").cast("string")), 256),
    )
    return rows.where(work != "")


@pytest.mark.parametrize("through", ["union", "join"])
def test_a_burst_of_a_thousand_times_in_another_source_sheds_nothing_of_ours(spark, checkpoint, through):
    # A join with state may take seconds a batch where the machine is busy; the target is far from that.
    shedder = ps.shed(latency_seconds=30, checkpoint=checkpoint, row_id="value")
    ours = dear(numbers(spark, rows_per_batch=ROWS).transform(shedder)).select("value")
    theirs = other_source(spark)
    if through == "union":
        both = ours.union(theirs)
    else:
        both = ours.join(theirs.withColumnRenamed("value", "other"), F.expr("value = other"))
    run = shedder.start(both.writeStream.format("noop"))
    batches = finish_batches(run, QUIET_BATCHES + BURST_BATCHES + 2)

    planner = shedder._planner
    units = [planner.units_by_source(batch.batch_id) for batch in batches]
    bursts = [number for number, each in enumerate(units) if BURST in each]
    assert len(bursts) == BURST_BATCHES
    expected = [planner.log.decision(batches[number].batch_id).expected_tuples for number in bursts]
    assert expected == pytest.approx([ROWS] * BURST_BATCHES, rel=0.1)
    assert [batch.keep for batch in batches] == [1.0] * len(batches), [batch.reason for batch in batches]


def test_a_source_that_the_query_reads_twice_is_foreseen_as_it_is_counted(spark, checkpoint):
    """Spark's offset log lists it twice, its progress reports once."""
    events = numbers(spark, rows_per_batch=ROWS)
    shedder = ps.shed(latency_seconds=60, checkpoint=checkpoint, row_id="value")
    both = events.transform(shedder).select("value").union(events.select("value"))
    batches = finish_batches(shedder.start(both.writeStream.format("noop")), 4)

    planner = shedder._planner
    assert planner.units_by_source(batches[3].batch_id) == (ROWS, ROWS)
    assert batches[3].offered == ROWS
    assert planner.log.decision(batches[3].batch_id).expected_tuples == pytest.approx(ROWS, rel=0.01)

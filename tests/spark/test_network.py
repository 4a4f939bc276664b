"""Networks inside real streaming queries."""

import json
import time

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.control.guidance import Guidance
from penstock.model.errors import InvalidInputError, NotSupportedError
from penstock.model.forecast import Forecast
from penstock.model.load import Cost
from penstock.model.network import arc_name
from penstock.spark.compile.layout import planner_of

pytestmark = pytest.mark.spark

ROWS = 4_000


def events(spark, *, rows_per_batch=ROWS):
    """A second of event time per batch, from 10 s on; ``kind`` in seven parts, ``value`` in [0, 100)."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    frame = (
        source.option("numPartitions", 2).option("startTimestamp", 10_000).option("advanceMillisPerBatch", 1_000).load()
    )
    return frame.selectExpr(
        "value as id", "timestamp as at", "value % 7 as kind", "pmod(xxhash64(value), 100) as value"
    )


def six_outputs(network: ps.Network, frame, *, counting=None, costly_map=False) -> None:
    """Two window aggregates, rows by value, a union and a join, all behind one shared filter.

    With ``costly_map`` the user says that the map of the rows by value costs a hundred times as much as the rest.
    """
    little, much = (1e-6, 1e-4) if costly_map else (0.0, 0.0)
    source = network.source("events", frame, row_id="id", event_time="at", watermark="1 second")
    condition = F.col("kind") > 1 if counting is None else counting("id", "kind")
    shared = source.filter("shared", condition, seconds_per_tuple=little)
    by_kind = shared.aggregate(
        "by kind", window_seconds=4, slide_seconds=2, by="kind", of=F.col("value"), seconds_per_tuple=little
    )
    by_kind.output("sums", loss=ps.LossTolerance.of((1, 1), (0.2, 0.9)))
    shared.aggregate("all", window_seconds=2, seconds_per_tuple=little).output("counts")
    graph = ps.ValueGraph.of((0, 75, 0.2), (75, 100, 1.0))
    hashed = shared.map("hashed", digest=F.sha2(F.col("id").cast("string"), 256), seconds_per_tuple=much)
    upper = hashed.filter("upper", F.col("value") >= 50, seconds_per_tuple=little)
    upper.output("valued", columns=["id", "value", "digest"], value={"value": graph})
    others = source.filter("first", F.col("kind") == 0, seconds_per_tuple=little)
    second = shared.filter("second", F.col("kind") == 2, seconds_per_tuple=little)
    second.union("both", others, seconds_per_tuple=little).output("rows", columns=["id", "kind"])
    left = shared.filter("left", F.col("value") == 3, seconds_per_tuple=little)
    right = source.filter("right", (F.col("value") == 3) & (F.col("kind") < 3), seconds_per_tuple=little)
    pairs = left.join("pairs", right, on="value", within_seconds=0.5, seconds_per_tuple=little)
    forward = pairs.filter("forward", F.col("id") < F.col("right_id"), seconds_per_tuple=little)
    forward.output("pairs out", columns=["id", "right_id"], importance=0.5)


def run_batches(network: ps.Network, path, count: int) -> ps.Run:
    run = network.start(network.answers().writeStream.format("parquet").option("path", str(path)))
    watched = run.watch()
    for _ in range(count):
        next(watched)
    run.stop()
    return run


def overloaded(network: ps.Network, *, seconds_per_tuple: float) -> None:
    """Leave costs behind, as an earlier run would have."""
    cost = Cost(fixed_seconds=0.0, kept_seconds=seconds_per_tuple)
    planner_of(network).log.publish(
        Guidance(
            published_at=time.time(), forecast=Forecast(cost=cost, noise=0.1, late_factor=1.25), tuples_per_unit=(1.0,)
        )
    )


@pytest.fixture(scope="module")
def unshed(spark, tmp_path_factory):
    """One run that keeps everything, with a Python predicate that counts how often it is called."""
    folder = tmp_path_factory.mktemp("network")
    called = spark.sparkContext.accumulator(0)

    @F.udf("boolean")
    def counting(_, kind):
        called.add(1)
        return kind > 1

    network = ps.Network(checkpoint=str(folder / "checkpoint"), latency_seconds=600, probe_tuples=10**9)
    six_outputs(network, events(spark), counting=counting)
    run = run_batches(network, folder / "out", 7)
    return network, run, spark.read.parquet(str(folder / "out")).persist(), called.value


def test_every_output_gets_what_it_would_get_from_a_query_of_its_own(spark, unshed):
    _, run, answers, _ = unshed
    first = min(7, len(run.batches)) * ROWS
    ids = spark.range(first).selectExpr("id", "id % 7 as kind", "pmod(xxhash64(id), 100) as value", "id div 4000 as s")
    valued = (
        answers.where("output = 'valued'").select(F.from_json("row", "id LONG, digest STRING").alias("r")).select("r.*")
    )
    expected = ids.where("kind > 1 and value >= 50")
    assert valued.where(F.col("id") < first).count() == expected.count()
    assert valued.where("digest = sha2(string(id), 256)").count() == valued.count()
    both = (
        answers.where("output = 'rows'").select(F.from_json("row", "id LONG").alias("r")).where(F.col("r.id") < first)
    )
    assert both.count() == ids.where("kind = 2 or kind = 0").count()
    joined = answers.where("output = 'pairs out'").select(F.from_json("row", "id LONG, right_id LONG").alias("r"))
    left, right = ids.where("kind > 1 and value = 3"), ids.where("value = 3 and kind < 3")
    pairs = left.alias("l").join(right.alias("r"), F.expr("l.s = r.s and l.id < r.id"))
    assert joined.where(F.col("r.right_id") < first).count() == pairs.count()
    assert answers.where("weight != rows").count() == 0


def test_windows_put_together_from_panes_hold_the_right_sums(unshed):
    network, _, answers, _ = unshed
    found = network.windows(answers, "sums").where("start = timestamp_seconds(10)").collect()
    assert {json.loads(row.key)["kind"] for row in found} == {2, 3, 4, 5, 6}
    whole = network.windows(answers, "counts").where("start = timestamp_seconds(10)").first()
    assert (whole.rows, whole["count"], whole.count_error, whole.share) == (
        sum(1 for n in range(2 * ROWS) if n % 7 > 1), whole.rows, 0.0, 1.0,
    )  # fmt: skip
    assert sum(row.rows for row in found) == sum(1 for n in range(4 * ROWS) if n % 7 > 1)


def test_the_source_is_scanned_once_and_a_shared_operator_runs_once_per_tuple(unshed):
    _, run, _, called = unshed
    offered = sum(batch.offered for batch in run.batches)
    # The query may have been stopped in the middle of one batch more.
    assert offered <= called <= offered + ROWS
    assert all(progress["numInputRows"] in (0, ROWS) for progress in run.query.recentProgress)
    assert all(batch.operator_tuples["shared"] == ROWS for batch in run.network.batches)


def test_statistics_are_learned_from_counts_and_outputs_say_that_they_got_all(unshed):
    _, run, _, _ = unshed
    learned = {operator.name: operator for operator in run.network.statistics.operators}
    assert learned["shared"].selectivity == pytest.approx(5 / 7, abs=0.01)
    assert learned["second"].selectivity == pytest.approx(1 / 5, abs=0.02)
    assert learned["upper"].selectivity == pytest.approx(1 / 2, abs=0.05)
    assert all(operator.seconds_per_tuple > 0 for operator in learned.values())
    assert all(output.delivered == 1.0 for output in run.network.outputs.values())
    assert run.network.outputs["sums"].utility == 1.0
    assert run._repr_html_().count("<svg") == 1 + 5


def test_state_of_windows_and_joins_is_given_up_behind_the_watermark(unshed):
    _, run, _, _ = unshed
    last = run.query.recentProgress[-1]
    assert any(
        operator["numRowsRemoved"] > 0 for report in run.query.recentProgress for operator in report["stateOperators"]
    )
    assert last["eventTime"]["watermark"] > "1970-01-01T00:00:13"


@pytest.mark.parametrize("shedding", ["random", "semantic"])
def test_drops_appear_without_a_restart_are_counted_on_every_arc_and_weights_make_up_for_them(
    spark, checkpoint, tmp_path, shedding
):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=5, shedding=shedding)
    six_outputs(network, events(spark), costly_map=True)
    overloaded(network, seconds_per_tuple=3.0 / ROWS)  # 3 s of work in 2.5 s at headroom 0.8
    run = network.start(network.answers().writeStream.format("parquet").option("path", str(tmp_path / "out")))
    watched = run.watch()
    first = next(watched)
    run_id = run.query.runId
    # The controller learns the true costs by itself; what is counted holds whatever it finds.
    for _ in range(3):
        next(watched)
    assert run.query.runId == run_id
    run.stop()
    assert first.keep < 0.7
    assert "load 1.20 > headroom 0.80" in first.reason
    done = run.network.batches
    assert any(arc.shed > 0 for arc in done[0].arcs)
    assert all(arc.offered == arc.kept + arc.shed >= arc.kept >= 0 for batch in done for arc in batch.arcs)
    entered = run.network.arc_ledger().orderBy("batch_id").collect()
    assert [row.batch_id for row in entered] == [batch.batch.batch_id for batch in done]
    for row, batch in zip(entered, done, strict=True):
        assert {arc: counts.shed for arc, counts in row.arcs.items()} == {arc_name(a.arc): a.shed for a in batch.arcs}
    drops = done[0].plan.drops
    assert any(drop.ranges for drop in drops.values()) == (shedding == "semantic")
    for batch in done:
        for arc in batch.arcs:
            keep = batch.plan.keep(arc.arc)
            if arc.offered > 500 and not (arc.arc in batch.plan.drops and batch.plan.drops[arc.arc].ranges):
                assert arc.kept / arc.offered == pytest.approx(keep, abs=0.08)
    answers = spark.read.parquet(str(tmp_path / "out"))
    windows = network.windows(answers, "counts").where("end <= timestamp_seconds(14)").collect()
    for window in windows:
        truth = 2 * ROWS * 5 / 7
        assert abs(window["count"] - truth) <= max(5 * window.count_error, 0.002 * truth)


@pytest.mark.parametrize("shedding", ["random", "uniform"])
def test_shedding_ends_when_the_load_fits_again(spark, checkpoint, tmp_path, shedding):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=600, shedding=shedding)
    few = network.source("events", events(spark), row_id="id").filter("few", F.col("kind") < 2)
    few.output("few rows", columns=["id"])
    few.filter("fewer", F.col("kind") == 0).output("fewer rows", columns=["id"])
    overloaded(network, seconds_per_tuple=400.0 / ROWS)
    run = network.start(network.answers().writeStream.format("parquet").option("path", str(tmp_path / "out")))
    # How many batches it takes to learn the true costs hangs on how soon each is entered.
    for _, batch in zip(range(40), run.watch(), strict=False):
        if batch.batch_id and batch.keep == 1:
            break
    run.stop()
    assert run.batches[0].keep < 1
    assert run.batches[-1].keep == 1
    dropped = run.network.batches[0].plan.drops
    assert set(dropped) == {("", "events")} if shedding == "uniform" else dropped
    assert run.network.batches[-1].plan.drops == {}


def test_a_target_for_the_error_is_learned_as_a_loss_graph_and_windows_are_held_to_it(spark, checkpoint, tmp_path):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=5)
    source = network.source("events", events(spark), row_id="id", event_time="at", watermark="1 second")
    loose, strict = ps.MaxError(relative=0.2), ps.MaxError(relative=1e-4, otherwise="null")
    summed = source.aggregate("summed", window_seconds=2, of=F.col("value"), seconds_per_tuple=1e-4)
    summed.output("sums", error=loose)
    source.aggregate("counted", window_seconds=2, seconds_per_tuple=1e-4).output("counts", error=strict)
    overloaded(network, seconds_per_tuple=6.0 / ROWS)  # 6 s of work in 2.5 s at headroom 0.8
    run = run_batches(network, tmp_path / "out", 7)
    learned = {output.name: output.loss for output in run.network.statistics.outputs}
    # A fifth off at 95 % takes some hundred rows of thousands; a ten-thousandth takes them all.
    assert learned["sums"].points[1][0] < 0.5
    assert learned["counts"].points[1][0] > 0.95
    answers = spark.read.parquet(str(tmp_path / "out"))
    first = "start = timestamp_seconds(10)"
    assert network.windows(answers, "sums").where(first).first().share < 0.9
    truth = spark.range(2 * ROWS).selectExpr("sum(pmod(xxhash64(id), 100)) AS total").first().total
    told = network.windows(answers, "sums").where(first).first().answer
    assert told.reliable
    assert told.lower - 2 * (told.value - told.lower) <= truth <= told.upper + 2 * (told.upper - told.value)
    missed = network.windows(answers, "counts").where(first).first()
    assert missed["count"] > 0
    assert missed.answer.value is None
    assert missed.answer.relative_error > strict.relative


def test_latency_graphs_choose_the_target(spark, checkpoint, tmp_path):
    network = ps.Network(checkpoint=checkpoint, probe_tuples=10**9)
    source = network.source("events", events(spark), row_id="id", event_time="at")
    patient, hasty = ps.LatencyGraph.of((100, 1.0), (200, 0.0)), ps.LatencyGraph.of((60, 1.0), (200, 0.0))
    source.filter("few", F.col("kind") == 0).output("few rows", columns=["id"], latency=patient)
    source.filter("more", F.col("kind") == 1).output("more rows", columns=["id"], latency=hasty)
    run = run_batches(network, tmp_path / "out", 7)
    assert run.network.latency_seconds == pytest.approx(60)


def test_a_second_source_joins_and_unites_with_the_first(spark, checkpoint, tmp_path):
    network = ps.Network(checkpoint=checkpoint, latency_seconds=600, probe_tuples=10**9)
    one = network.source("one", events(spark, rows_per_batch=700), row_id="id", event_time="at")
    other = network.source("other", events(spark, rows_per_batch=350).drop("value"), row_id="id", event_time="at")
    one.filter("a", F.col("kind") == 1).union("u", other).output("united", columns=["id"])
    one.join("j", other, on="id", within_seconds=0.5).output("joined", columns=["id", "right_kind"])
    run = run_batches(network, tmp_path / "out", 3)
    answers = spark.read.parquet(str(tmp_path / "out"))
    assert {operator.name for operator in run.network.statistics.operators} == {"a", "u", "j"}
    first = answers.where("output = 'united'").count()
    assert first >= 3 * (100 + 350)
    joined = answers.where("output = 'joined'").select(F.from_json("row", "id LONG, right_kind LONG").alias("r"))
    assert joined.where("r.id % 7 != r.right_kind").count() == 0
    assert joined.where("r.id < 350").count() == 350


def _two_value_columns(network, source, spark):
    graph = ps.ValueGraph.of((0, 1, 1.0))
    source.output("a", value={"value": graph})
    source.output("b", value={"kind": graph})


def _aggregate_below_join(network, source, spark):
    other = source.filter("f", F.col("kind") == 1)
    source.join("j", other, on="id", within_seconds=1).aggregate("a", window_seconds=2).output("o")
    network.answers()


def _aggregate_of_aggregate(network, source, spark):
    source.aggregate("a", window_seconds=2).filter("f", F.col("kind") == 1).output("o")
    network.answers()


REFUSED = {
    "makes the column 'kind', which there is already": (InvalidInputError, lambda n, s, _: s.map("m", kind=F.lit(1))),
    "must make columns": (InvalidInputError, lambda n, s, _: s.map("m")),
    "must be a multiple of slide_seconds": (
        InvalidInputError,
        lambda n, s, _: s.aggregate("a", window_seconds=5, slide_seconds=2),
    ),
    "given twice": (InvalidInputError, lambda n, s, _: s.filter("f", "kind = 1").filter("f", "kind = 1")),
    "must be a streaming DataFrame": (
        InvalidInputError,
        lambda n, s, spark: n.source("x", spark.range(1), row_id="id"),
    ),
    "row_id of source 'x' names the column 'nope'": (
        InvalidInputError,
        lambda n, s, spark: n.source("x", events(spark), row_id="nope"),
    ),
    "must name one column": (InvalidInputError, lambda n, s, _: s.output("o", value=ps.ValueGraph.of((0, 1, 1)))),
    "which only answers of windows have": (
        InvalidInputError,
        lambda n, s, _: s.output("o", error=ps.MaxError(relative=0.1)),
    ),
    "give one of them": (
        InvalidInputError,
        lambda n, s, _: s.aggregate("a", window_seconds=2).output(
            "o", error=ps.MaxError(relative=0.1), loss=ps.LossTolerance.of((1, 1), (0.5, 0.9))
        ),
    ),
    "have those of the normal": (
        NotSupportedError,
        lambda n, s, _: s.aggregate("a", window_seconds=2).output(
            "o", error=ps.MaxError(relative=0.1, method="hoeffding")
        ),
    ),
    "go by one column": (NotSupportedError, _two_value_columns),
    "below a join only filters": (NotSupportedError, _aggregate_below_join),
    "only outputs may": (NotSupportedError, _aggregate_of_aggregate),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_built_is_refused_with_the_reason(said, spark, checkpoint):
    error, build = REFUSED[said]
    network = ps.Network(checkpoint=checkpoint)
    source = network.source("events", events(spark), row_id="id", event_time="at")
    with pytest.raises(error, match=said):
        build(network, source, spark)


def test_shedding_must_be_one_of_four(checkpoint):
    with pytest.raises(
        InvalidInputError, match="shedding must be 'random', 'semantic', 'uniform' or 'none', got 'best'"
    ):
        ps.Network(checkpoint=checkpoint, shedding="best")

"""Bad input gets a clear error before anything starts, the same at every door."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import penstock as ps
from penstock.model.errors import NotSupportedError, PlanLogError
from penstock.model.load import Cost
from tests.spark.door import Given
from tests.spark.doors import DOORS, NO_DOORS
from tests.spark.nonsense import SECRET, BatchFrame
from tests.spark.streams import finish_batches, numbers

FOLDERS = ("folder", "local folder", "spill")


def tried(*, spark: bool) -> list:
    """Every bad value for every argument of every door, by a name of its own."""
    return [
        pytest.param(name, argument, number, id=f"{name}-{argument}-{number}")
        for name, door in DOORS.items()
        if door.spark is spark
        for number, (argument, _) in enumerate(door.bad())
    ]


def refuse(name: str, argument: str, number: int, given: Given) -> None:
    """Try one bad value at a door: it must be refused, by name, with a cure, and without telling a secret."""
    door = DOORS[name]
    bad = list(door.bad())[number][1]
    if bad is BatchFrame:
        bad = given.session.range(1)
    if isinstance(bad, dict) and any(value is F.lit for value in bad.values()):
        bad = {key: F.lit(1) for key in bad}
    if bad is None and signature(door.find(given)).parameters[argument].default is None:
        return
    with pytest.raises(ps.PenstockError) as refused:
        door.open(given, **{argument: bad})

    assert type(refused.value) in (ps.InvalidInputError, NotSupportedError)
    refused.match(door.said.get(argument, argument))
    refused.match("; ")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("name", "argument", "number"), tried(spark=False))
def test_what_cannot_be_worked_with_is_refused_at_every_door(name, argument, number, tmp_path):
    refuse(name, argument, number, Given(folder=tmp_path))


@pytest.mark.spark
@pytest.mark.parametrize(("name", "argument", "number"), tried(spark=True))
def test_what_cannot_be_worked_with_is_refused_at_every_door_of_a_session(name, argument, number, tmp_path, spark):
    refuse(name, argument, number, Given(folder=tmp_path, spark=spark))


@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.opens and not door.spark])
def test_a_door_opens_with_what_it_is_meant_for(name, tmp_path):
    DOORS[name].open(given := Given(folder=tmp_path), **DOORS[name].good(given))


@pytest.mark.spark
@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.opens and door.spark])
def test_a_door_of_a_session_opens_with_what_it_is_meant_for(name, tmp_path, spark):
    DOORS[name].open(given := Given(folder=tmp_path, spark=spark), **DOORS[name].good(given))


@pytest.mark.parametrize("name", [name for name in ps.__all__ if name not in NO_DOORS])
def test_no_public_name_is_forgotten(name):
    assert name in DOORS or any(door.startswith(f"{name}.") for door in DOORS)


@pytest.mark.spark
@pytest.mark.parametrize("name", DOORS)
def test_no_argument_is_forgotten(name, tmp_path, spark):
    function: Callable = DOORS[name].find(Given(folder=tmp_path, spark=spark))
    assert set(signature(function).parameters) == set(DOORS[name].takes)


@pytest.mark.parametrize("named", ["shed", "Network", "operator", "Spill"])
def test_a_folder_may_be_a_path(named, tmp_path):
    for argument, takes in DOORS[named].takes.items():
        if takes in FOLDERS:
            made = DOORS[named].open(Given(folder=tmp_path), **{argument: tmp_path / "here"})
            as_text = DOORS[named].open(Given(folder=tmp_path), **{argument: str(tmp_path / "here")})
            assert folder_of(made, argument) == folder_of(as_text, argument) == tmp_path / "here"


def folder_of(made: object, argument: str) -> object:
    """The folder that a door understood."""
    if isinstance(made, ps.Spill):
        return made.folder
    if argument == "spill":
        return (made.spill if isinstance(made, ps.Network) else made._spill).folder
    return made.checkpoint if isinstance(made, ps.Network) else made._planner.checkpoint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency_seconds": 0}, "latency_seconds must be finite and above 0, got 0; it is the time from arrival"),
        ({"latency_seconds": float("nan")}, "latency_seconds must be finite and above 0, got nan"),
        ({"late_share": 0}, r"late_share must be in \(0, 1\), got 0; it is the share of batches that may be late"),
        ({"latency_of": "newest"}, "latency_of must be 'oldest' or 'mean', got 'newest'"),
        ({"probe_tuples": 0}, "probe_tuples must be finite and above 0, got 0"),
        ({"grace_seconds": -1}, "grace_seconds must be finite and above 0, got -1"),
        (
            {"policy": "uniform"},
            r"policy must be a policy with decide\(load\), got 'uniform'; give one, as in Uniform\(\)",
        ),
        ({"name": "a/b"}, "name must be letters, digits"),
        ({"row_id": ""}, "row_id takes column names, got ''"),
        ({"checkpoint": "gs://bucket/x"}, "is not in a store that is known to create a file for exactly one writer"),
        ({"checkpoint": ""}, "checkpoint is empty"),
    ],
)
def test_options_that_cannot_be_worked_with_are_refused(options, message):
    with pytest.raises(ps.PenstockError, match=message):
        ps.shed(**{"latency_seconds": 5, "checkpoint": "/nowhere", **options})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Uniform(keep=1.2), r"keep must be in \[0, 1\], got 1.2; it is the share of tuples that survive"),
        (lambda: ps.Uniform(keep=float("nan")), r"keep must be in \[0, 1\], got nan"),
        (lambda: ps.Priority(keep={}), r"keep must list at least one key and its rate; without any, use Uniform\(\)"),
        (lambda: ps.Priority(keep={"a": -0.1}), r"key_keep\['a'\] must be in \[0, 1\], got -0.1"),
        (lambda: ps.Priority(keep={7: 0.1}), r"key 7 of type int; keys are compared as text, so give str\(7\)"),
        (lambda: Cost(fixed_seconds=0.1, kept_seconds=float("nan")), "kept_seconds must be finite and at least 0"),
    ],
)
def test_policies_and_costs_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ps.InvalidInputError, match=message):
        make()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row_id": "nope"}, "row_id names the column 'nope', which the stream does not have; it has timestamp, value"),
        ({"key": "nope"}, "key names the column 'nope'"),
        ({"arrival": "nope"}, "arrival names the column 'nope'"),
        ({"arrival": "value"}, "arrival names the column 'value' of type bigint; latency is measured from a timestamp"),
        ({"weight": "timestamp"}, "has a column 'timestamp' of type timestamp, where the weight of"),
        ({"policy": ps.Priority(keep={"a": 1.0})}, r"no key column was named; give shed\(key=...\)"),
    ],
)
def test_columns_that_do_not_fit_are_named_before_the_query_starts(spark, checkpoint, options, message):
    with pytest.raises(ps.InvalidInputError, match=message):
        numbers(spark).transform(ps.shed(latency_seconds=5, checkpoint=checkpoint, **options))


@pytest.mark.spark
def test_a_batch_data_frame_is_refused(spark, checkpoint):
    with pytest.raises(ps.InvalidInputError, match="must be a streaming DataFrame, and this one is a batch"):
        spark.range(3).transform(ps.shed(latency_seconds=5, checkpoint=checkpoint))


@pytest.mark.spark
def test_a_stream_of_maps_alone_needs_a_row_id(spark, checkpoint):
    maps = numbers(spark).select(F.create_map("value", "value").alias("m"))
    with pytest.raises(ps.InvalidInputError, match="no column of the stream can be hashed"):
        maps.transform(ps.shed(latency_seconds=5, checkpoint=checkpoint))


@pytest.mark.spark
def test_a_shedder_serves_one_stream(spark, checkpoint):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint)
    with pytest.raises(ps.InvalidInputError, match="nothing was shed yet"):
        shedder.start(numbers(spark).writeStream)
    numbers(spark).transform(shedder)
    with pytest.raises(ps.InvalidInputError, match="already applied to a stream"):
        numbers(spark).transform(shedder)


@pytest.mark.spark
def test_working_columns_of_the_user_are_not_overwritten(spark, checkpoint):
    taken = numbers(spark).withColumn("__penstock_kept", F.lit(1))
    with pytest.raises(ps.InvalidInputError, match="rename it, Penstock works with that name"):
        taken.transform(ps.shed(latency_seconds=5, checkpoint=checkpoint))


@pytest.mark.spark
def test_a_corrupt_plan_entry_is_refused_at_the_start_and_nothing_is_lost(spark, checkpoint):
    def start():
        shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
        return shedder.start(numbers(spark).transform(shedder).writeStream.format("noop"))

    last = finish_batches(start(), 2)[-1].batch_id
    entry = Path(checkpoint) / "penstock" / "shed" / "plans" / f"{last}.json"
    whole = entry.read_text()
    entry.write_text(whole[:40])
    with pytest.raises(PlanLogError, match=rf"{last}\.json is truncated or not JSON.*restore the file from a copy"):
        start()
    entry.write_text(whole)
    assert finish_batches(start(), 1)[0].offered == 5_000


@pytest.mark.spark
def test_a_plan_entry_that_goes_bad_while_the_query_runs_is_named_in_our_own_words(spark, checkpoint):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    run = shedder.start(numbers(spark, rows_per_batch=10).transform(shedder).writeStream.format("noop"))
    first = next(run.watch())
    ahead = Path(checkpoint) / "penstock" / "shed" / "plans" / f"{first.batch_id + 20}.json"
    ahead.write_text("{ torn")
    with pytest.raises(PlanLogError, match="must shed what it shed the first time, so restore the file from a copy"):
        run.await_termination(120)


@pytest.mark.spark
def test_a_shed_frame_cannot_be_run_as_a_batch(spark, checkpoint, tmp_path):
    shedder = ps.shed(latency_seconds=5, checkpoint=checkpoint, row_id="value")
    kept = numbers(spark).transform(shedder)
    with pytest.raises(Exception, match="writeStream"):
        kept.count()


def dotted(spark):
    """A stream whose columns have dots in their names."""
    return numbers(spark, rows_per_batch=100).toDF("t.s", "a.b")


@pytest.mark.spark
def test_a_shedder_works_on_columns_with_dots_and_in_a_folder_with_any_name(spark, tmp_path):
    folder = tmp_path / "ü b%20c"
    policy = ps.Priority(keep={"7": 1.0})
    options = {"row_id": "a.b", "key": "a.b", "arrival": "t.s", "weight": "w.x", "policy": policy}
    spill = ps.Spill(tmp_path / "s pill", rows="all")
    shedder = ps.shed(latency_seconds=60, checkpoint=folder, name="ü.1-a", spill=spill, **options)
    kept = dotted(spark).transform(shedder)
    assert kept.columns == ["t.s", "a.b", "w.x"]
    (batch, *_) = finish_batches(shedder.start(kept.writeStream.format("noop")), 1)

    assert batch.offered == batch.kept == 100
    assert (folder / "commits" / "0").exists()
    assert (folder / "penstock" / "ü.1-a" / "plans").exists()
    assert shedder.spilled().where("batch = 0").count() == 100


@pytest.mark.spark
def test_an_operator_works_on_columns_with_dots(spark, tmp_path):
    options = {"key": "a.b", "arrival": "t.s", "utility": "a.b", "weight": "w.x", "latency": 60}
    operator = ps.operator(
        lambda row: {"a.b": row["a.b"]}, returns="`a.b` BIGINT", checkpoint=tmp_path / "work", **options
    )
    results = dotted(spark).transform(operator)
    assert results.columns == ["a.b", "w.x"]
    (batch, *_) = finish_batches(operator.start(results.writeStream.format("noop")), 1)

    assert batch.offered == batch.kept == 100


@pytest.mark.spark
def test_a_network_works_on_columns_with_dots(spark, tmp_path):
    network = ps.Network(checkpoint=tmp_path / "work", latency_seconds=60)
    options = {"row_id": "a.b", "arrival": "t.s", "event_time": "t.s"}
    one = network.source("one", dotted(spark), **options)
    other = network.source("other", dotted(spark), **options)
    even = one.filter("even", F.col("`a.b`") % 2 == 0).map("made", **{"m.n": F.col("`a.b`") + 1})
    even.output("rows", columns=["a.b", "m.n"], value={"a.b": ps.ValueGraph.of((0, 1e9, 1.0))})
    even.aggregate("counts", window_seconds=10, by=["m.n"], of=F.col("`a.b`")).output("windows")
    one.union("both", other).output("all")
    one.join("pairs", other, on="a.b", within_seconds=1).output("paired", columns=["right_a.b"])
    run = network.start(network.answers().writeStream.format("parquet").option("path", str(tmp_path / "out")))
    (batch, *_) = finish_batches(run, 1)

    assert batch.offered == batch.kept == 200
    rows = spark.read.parquet(str(tmp_path / "out")).where("output = 'rows'").select("row")
    assert {tuple(each.row) for each in rows.select(F.from_json("row", "`a.b` INT, `m.n` INT").alias("row")).collect()}


@pytest.mark.spark
def test_windows_work_on_columns_with_dots(spark, tmp_path):
    windows = ps.shed_windows(
        lambda rows: rows[["a.b"]],
        "`a.b` BIGINT",
        time="t.s",
        size_seconds=1,
        key="a.b",
        value="a.b",
        row_id="a.b",
        weight="w.x",
        policy=ps.ConceptDriven(relative_error=0.1),
        latency_seconds=60,
        checkpoint=tmp_path,
    )
    made = dotted(spark).withWatermark("`t.s`", "1 second").transform(windows)
    assert made.columns == ["window", "a.b", "shed"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (ps.ConceptDriven(relative_error=0.1), {}, "relative_error .*does nothing for pairs; give a join its budget"),
        (ps.ConceptDriven(relative_error=0.1, keep=0.1), {"value": "value"}, "relative_error .*does nothing for pairs"),
        (ps.ConceptDriven(keep=0.1, rule="neyman"), {"value": "value"}, "rule='neyman' .*does nothing for pairs"),
        (ps.ConceptDriven(keep=0.1), {"value": "nope"}, "value names the column 'nope', which neither stream has"),
        (ps.ConceptDriven(keep=0.1), {"key": ()}, "a join needs a key"),
    ],
)
def test_what_would_do_nothing_in_a_join_is_refused(spark, tmp_path, policy, options, message):
    door, given = DOORS["shed_join"], Given(folder=tmp_path, spark=spark)
    with pytest.raises(ps.InvalidInputError, match=message):
        given.watermarked().transform(door.open(given, policy=policy, **options), given.watermarked())


@pytest.mark.spark
@pytest.mark.parametrize("argument", ["row_id", "key", "value", "arrival", "event_time", "utility", "time", "by", "on"])
def test_a_column_that_is_not_there_or_there_twice_is_named_at_every_door(spark, tmp_path, argument):
    """Doors that look at columns only when they are given a stream are given one here."""
    tried = 0
    for name in ("shed", "operator", "Network.source", "shed_windows", "Stream.aggregate", "Stream.join"):
        door, given = DOORS[name], Given(folder=tmp_path, spark=spark)
        if argument not in door.takes:
            continue
        column = "timestamp" if argument in ("arrival", "event_time", "time", "utility") else "value"
        doubled = numbers(spark).selectExpr("*", column)
        streams = {"nope": numbers(spark), column: doubled}
        if name.startswith("Stream"):
            streams.pop(column)
        for bad, stream in streams.items():
            tried += 1
            frames = {"frame": stream} if name == "Network.source" else {}
            with pytest.raises(ps.InvalidInputError, match=f"{argument}.* names the column '{bad}', which the"):
                pass_through(door, stream, given, **{argument: bad}, **frames)
    assert tried


def pass_through(door, stream, given, **options):
    """Open a door, and let a stream in where the door does not ask for it."""
    return stream.transform(door.open(given, **options))

"""The code paths of the figures of [LAS20], on few and short runs."""

import json
import math

import numpy as np
import pytest

from lab.reproduce import las20, las_phases, las_spark
from lab.reproduce.catalogue import FIGURES
from lab.reproduce.las_runs import FULL_KNOWLEDGE, LAS, Point, run_points


@pytest.mark.parametrize("name", ["fig4", "fig5", "fig6", "fig7", "fig8", "fig9"])
def test_a_simulated_figure_is_computed_and_its_curves_are_numbers(name, monkeypatch):
    monkeypatch.setattr(las20, "QUICK_RUNS", 1)
    monkeypatch.setattr(las_phases, "QUICK_RUNS", 1)

    figure = FIGURES[f"las/{name}"].compute(full=False)

    assert figure.figure == f"las/{name}"
    assert figure.seeds == {"seed": 2020}
    assert len(figure.claims) >= 4
    assert "learning phase" in figure.settings["counted"]
    assert json.dumps(figure.to_json(), allow_nan=False)
    # With a single run a model may never have come; all else is a number.
    assert all(math.isfinite(y) for series in figure.series if "model" not in series.y_label for y in series.y)


def test_runs_are_the_same_on_one_core_and_on_many():
    points = [Point(tuples=2_000, calm=200), Point(tuples=2_000, calm=200, under_provisioned=0.5)]

    alone = run_points(points, runs=4, policies=(FULL_KNOWLEDGE, LAS), seed=1)
    spread = run_points(points * 11, runs=4, policies=(FULL_KNOWLEDGE, LAS), seed=1)

    for one, other in zip(alone, spread, strict=False):
        for name in (FULL_KNOWLEDGE, LAS):
            assert np.array_equal(one.outcomes[name], other.outcomes[name], equal_nan=True)
    assert alone[0].extremes(FULL_KNOWLEDGE, "dropped")[0] <= alone[0].mean(FULL_KNOWLEDGE, "dropped")


def test_a_timetable_warms_up_first_and_then_follows_the_phases():
    timetable = las_spark.seven_phase_timetable(phase_tuples=100, seed=1)

    assert (np.bincount(timetable.parts + 1)[1:] == 100).all()
    assert (np.diff(timetable.arrived_at[timetable.calm :]) > 0).all()
    in_f, in_g = (timetable.costs_seconds[timetable.parts == part].mean() for part in (5, 6))
    assert in_f > 1.5 * in_g


def test_without_the_data_a_stream_of_the_same_skew_is_drawn(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))

    keys, origin = las_spark.mentions(50_000)

    shares = np.sort(np.unique(keys, return_counts=True)[1])[::-1] / keys.size
    assert origin.startswith("generated")
    assert 0.02 < shares[0] < 0.1
    costs = las_spark.class_costs(keys)
    assert set(np.unique(costs)) == {1e-3, 5e-3, 25e-3}
    assert costs.mean() == pytest.approx(9.7e-3, rel=0.25)


def test_the_claims_of_the_spark_figures_follow_from_the_traces():
    timetable = las_spark.seven_phase_timetable(phase_tuples=800, seed=1)
    at = np.linspace(0, timetable.seconds, 40)

    def trace(latency, kept):
        return las_spark.Trace(at, np.full(40, 100.0), np.full(40, kept), np.broadcast_to(latency, 40).astype(float))

    traces = {
        las_spark.PLAIN: las_spark.Trace(at[:4] / 5, np.full(4, 100.0), np.full(4, 100.0), np.array([4.0, 8, 16, 32])),
        las_spark.STRAW_MAN: trace(4.0, 60.0),
        las_spark.FULL_KNOWLEDGE: trace(1.9, 60.0),
        las_spark.LAS: trace(2.0, 58.0),
        las_spark.DENSITY: trace(2.0, 70.0),
    }

    figure = las_spark.seven_phase_figure(timetable, traces, full=False)

    assert figure.held
    traces[las_spark.LAS] = trace(3.0, 30.0)
    failed = [c.text for c in las_spark.seven_phase_figure(timetable, traces, full=False).claims if not c.held]
    assert failed == ["LAS: mean latency against the target", "LAS: drops against the same code with true costs"]


@pytest.mark.spark
@pytest.mark.slow
def test_queries_side_by_side_are_traced_on_spark(spark):
    timetable = las_spark.seven_phase_timetable(phase_tuples=80, seed=1)

    traces = las_spark.run_side_by_side(
        timetable, mean_seconds=0.003, seconds_more=6.0, shedders=(las_spark.LAS,), warm_up_batches=1
    )

    assert set(traces) == {las_spark.PLAIN, las_spark.LAS}
    for trace in traces.values():
        assert trace.offered.sum() > 0
        assert (trace.kept <= trace.offered).all()
        assert (trace.latency_seconds > 0).all()

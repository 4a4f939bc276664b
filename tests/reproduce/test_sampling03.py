"""The figures of [Sampling03], at small sizes."""

import pytest

from lab.reproduce.sampling03_coverage import CASES, coverage
from lab.reproduce.sampling03_tradeoff import QUERIES, shared_diagram, tradeoff, unshared_diagram
from lab.reproduce.skewed import FOLDER_VARIABLE, column_values


def test_the_tradeoff_shows_three_curves_and_the_paper_has_the_least_error():
    figure = tradeoff(full=False, windows=200)

    curves = {series.name: series.y for series in figure.series[:3]}
    assert len(curves) == 3
    assert figure.held
    assert all(
        own <= other for name in curves for own, other in zip(curves["least error, shared"], curves[name], strict=True)
    )


def test_what_queries_share_costs_once():
    shared, apart = shared_diagram(), unshared_diagram()

    # 1e-4 s for parsing: once, or for each of five queries; 2e-4 and 1e-4 s of a tenth and a fiftieth of all, twice.
    extra = 4 * 1e-4 + 1.0 * 2e-4 + 1.0 * 1e-4
    assert apart.load() - shared.load() == pytest.approx(2_000 * extra)
    assert {query.name for query in shared.queries} == set(QUERIES)


def test_the_coverage_is_counted_for_every_case_on_made_up_values_too(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    figure = coverage(full=False, windows=3, samples=20)

    assert "made up in the shape of tlc_green.fare_amount" in figure.settings["values"]
    assert [claim.text.split(":")[0] for claim in figure.claims] == [*(case.name for case in CASES), "Hoeffding"]
    assert figure.claims[-1].held


def test_made_up_values_are_the_same_each_time(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    first, second = (column_values("google_task_events", "cpu_request", seed=1)[0] for _ in range(2))

    assert (first == second).all()

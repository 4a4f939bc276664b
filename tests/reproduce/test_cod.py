"""The figures of CoD18, on generated streams and with few windows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lab.reproduce import cod_accuracy, cod_drift, cod_streams
from lab.reproduce.cod_error import errors_of
from lab.reproduce.cod_join import join_errors
from lab.reproduce.cod_replay import bootstrapped_mean, replay, write_panes
from penstock.policy.baseline import Uniform
from penstock.policy.strata.concept import ConceptDriven


@pytest.fixture
def generated(monkeypatch, tmp_path):
    """Streams as they are where no data is at hand."""
    monkeypatch.setenv(cod_streams.DATA_VARIABLE, str(tmp_path))
    for read in (cod_streams.task_events, cod_streams.taxi_trips):
        read.cache_clear()
    yield
    for read in (cod_streams.task_events, cod_streams.taxi_trips):
        read.cache_clear()


def test_generated_streams_have_the_shape_of_the_real_ones(generated):
    by_user, by_class, by_route, alone = (
        cod_streams.users(),
        cod_streams.scheduling_classes(),
        cod_streams.routes(),
        cod_streams.scalar(),
    )

    assert not any(stream.real for stream in (by_user, by_class, by_route, alone))
    assert all((np.diff(stream.seconds) >= 0).all() for stream in (by_user, by_route))
    assert 300 < len(np.unique(by_user.keys)) <= 400
    assert len(np.unique(by_class.keys)) == 4
    assert 20_000 < len(np.unique(by_route.keys)) <= 27_000
    assert set(alone.keys.tolist()) == {0}
    span = next(by_user.windows())
    assert by_user.seconds[span.stop - 1] - by_user.seconds[span.start] <= 3_600


def test_the_concept_beats_uniform_on_groups_and_equals_it_on_a_scalar(generated):
    policies = {"uniform": Uniform(keep=0.02), "concept": ConceptDriven(keep=0.02)}
    grouped = errors_of(cod_streams.users(), policies, seeds=range(2), most_windows=2)
    scalar = errors_of(cod_streams.scalar(), policies, seeds=range(2), most_windows=2)

    assert grouped["concept"].mean < grouped["uniform"].mean / 10
    assert grouped["concept"].missing.max() == 0
    assert grouped["concept"].processed == pytest.approx(0.02, rel=0.01)
    assert scalar["concept"].mean == pytest.approx(scalar["uniform"].mean, abs=0.02)


def test_a_join_by_concept_beats_a_uniform_one(generated):
    joined = join_errors(keep=0.02, seeds=range(2), most_windows=2)

    assert joined.ratio("size") < 1 / 3
    assert joined.ratio("sum") < 1 / 3
    assert joined.processed_concept <= 0.02
    assert "generated stream" in joined.told(0.02)


def test_after_a_swap_no_form_of_the_concept_stays_wrong():
    found = cod_drift.swapped(seed=1, windows=6, window_tuples=100_000)

    for form in cod_drift.FORMS[1:]:
        errors, missing, volume = found[form]
        assert errors[4:].mean() < 1.3 * errors[1:3].mean()
        assert missing[4:].max() == 0
        # Right after the swap, groups that nobody knew are kept whole, and one window in six is that one.
        assert volume == pytest.approx(cod_drift.KEEP, rel=0.25)
    assert found["CoD, same window"][1].max() == 0
    assert found["CoD, same batch"][1].max() == 0


def test_the_figures_say_what_they_claim_and_with_which_volume(generated, monkeypatch):
    monkeypatch.setattr(cod_accuracy, "VOLUMES", (0.1, 0.25, 0.5))
    by_volume = cod_accuracy.fig10(full=False)

    assert by_volume.figure == "cod/fig10"
    assert {series.name for series in by_volume.series} == {"Uniform", "CoD, equal", "CoD, Neyman"}
    assert "25.00 % processed" in by_volume.settings["processed 25%"]
    assert by_volume.seeds


@pytest.mark.spark
def test_a_replay_takes_the_time_of_full_windows_only(spark, tmp_path, generated):
    whole = cod_streams.users()
    some = slice(0, 200_000)
    stream = replace(
        whole, seconds=whole.seconds[some], keys=whole.keys[some], values=whole.values[some], size_seconds=600.0,
        slide_seconds=300.0,
    )  # fmt: skip
    rows = write_panes(stream, tmp_path, windows=4)

    found = replay(spark, stream, tmp_path, ConceptDriven(keep=0.03))

    assert len(found.window_seconds) == 3
    assert (found.window_seconds > 0).all()
    assert found.batch_rows.sum() == rows + 1
    assert found.kept_share == pytest.approx(0.03, rel=0.01)
    assert found.p95 >= found.mean
    one = bootstrapped_mean(pd.DataFrame({"value": [1.0, 3.0] * 50, "weight": [1.0] * 100}))
    assert 2.0 < one["answer"].item() < 2.5

"""The figures of Aurora03, with few networks and short runs."""

import pytest

from lab.reproduce import aurora03, aurora03_loss, aurora03_skew


def test_the_worked_examples_are_what_the_paper_says():
    figure = aurora03.fig8(full=False)
    assert [claim for claim in figure.claims if not claim.held] == []
    assert {"value >= 25", "value > 75"} <= {claim.text.rpartition(": ")[2] for claim in figure.claims}


@pytest.fixture
def tiny(monkeypatch):
    """One network, short periods."""
    monkeypatch.setattr(aurora03_loss, "_seeds", lambda *, full: (2003,))
    monkeypatch.setattr(aurora03_loss, "EXCESSES", (0.22, 2.0))
    monkeypatch.setattr(aurora03_skew, "seeds_of", lambda *, full: (2003,))
    monkeypatch.setattr(aurora03_skew, "SKEWS", (0.0, 1.0))
    monkeypatch.setattr(aurora03_skew, "EXCESSES", (1.0, 3.0))
    monkeypatch.setattr(aurora03_skew, "SHARED_EXCESSES", (0.5, 4.0))
    for module in (aurora03_loss, aurora03_skew):
        monkeypatch.setattr(module, "trial", _short(module.trial))


def _short(trial):
    return lambda network, policy, **options: trial(network, policy, **{**options, "periods": 4})


@pytest.mark.parametrize("compute", [aurora03_loss.fig9, aurora03_loss.fig10], ids=["fig9", "fig10"])
def test_losses_are_drawn_for_six_policies_and_rise_with_the_rate(tiny, compute):
    figure = compute(full=False)
    assert len(figure.series) == 6
    for series in figure.series:
        assert 0 <= series.y[0] < series.y[-1] <= 100
    assert figure.claims[0].held  # semantic below random, and below all others


@pytest.mark.parametrize("compute", [aurora03_skew.fig11, aurora03_skew.fig12], ids=["fig11", "fig12"])
def test_ratios_are_drawn_by_skew_and_load(tiny, compute):
    figure = compute(full=False)
    assert all(y > 0.9 for series in figure.series for y in series.y)
    assert figure.seeds == {"seeds": [2003]}
    assert len(figure.claims) >= 3

"""How much an error target needs, against samples of that size."""

import numpy as np
import pytest

from penstock.estimate.needed import needed_share, tolerance
from penstock.model.error_target import MaxError


@pytest.mark.parametrize("uneven", [False, True])
def test_a_sample_of_the_needed_share_meets_the_target_as_often_as_stated(uneven):
    random = np.random.default_rng(3)
    values = random.lognormal(sigma=1.0, size=20_000) if uneven else np.ones(20_000)
    target = MaxError(relative=0.04, confidence=0.9)
    share = needed_share(target, tuples=values.size, evenness=float((values**2).mean() / values.mean() ** 2))
    kept = random.random((2_000, values.size)) < share
    errors = np.abs(kept @ values / share / values.sum() - 1)
    assert (errors <= target.relative).mean() == pytest.approx(0.9, abs=0.025)


def test_few_tuples_or_unknown_values_need_all():
    target = MaxError(relative=0.05)
    assert needed_share(target, tuples=0) == 1
    assert needed_share(target, tuples=1000, evenness=float("inf")) == 1
    assert needed_share(target, tuples=3) > 0.99


def test_utility_falls_off_below_the_needed_share():
    graph = tolerance(0.3)
    assert graph.utility(1.0) - graph.utility(0.3) < 0.02
    assert graph.utility(0.3) - graph.utility(0.15) == pytest.approx(0.495)
    assert tolerance(1.0).utility(0.5) == 0.5

"""A reservoir is a uniform sample, whatever the arrays it was fed with."""

import numpy as np
import pytest

from penstock.model.errors import InvalidInputError
from penstock.sketch.reservoir import Reservoir


def fed(stream, *, size, seed, cut):
    reservoir = Reservoir(size, seed=seed)
    for start in range(0, len(stream), cut):
        reservoir.update(stream[start : start + cut])
    return reservoir


def test_until_it_is_full_it_holds_everything():
    reservoir = fed(np.arange(30), size=50, seed=1, cut=7)

    assert reservoir.sample.tolist() == list(range(30))
    assert reservoir.seen == 30


def test_an_empty_reservoir_has_an_empty_sample():
    assert len(Reservoir(5, seed=1).sample) == 0


@pytest.mark.parametrize("cut", [1, 37, 1_000, 20_000])
def test_the_same_seed_gives_the_same_sample_however_the_stream_is_cut(cut):
    stream = np.arange(20_000)
    whole = fed(stream, size=100, seed=3, cut=20_000)

    assert fed(stream, size=100, seed=3, cut=cut).sample.tolist() == whole.sample.tolist()


def test_no_tuple_is_held_twice():
    sample = fed(np.arange(5_000), size=500, seed=2, cut=613).sample

    assert len(set(sample.tolist())) == 500


def test_every_tuple_is_equally_likely():
    stream = np.arange(40)
    held = np.zeros(40)
    for seed in range(4_000):
        held[fed(stream, size=10, seed=seed, cut=9).sample] += 1

    # Each count is binomial(4000, 1/4): standard deviation 27.4; 40 counts stay within 4.5 of them.
    assert np.abs(held - 1_000).max() < 4.5 * 27.4


def test_rows_of_several_fields_stay_together():
    rows = np.zeros(3_000, dtype=[("key", "i8"), ("value", "f8")])
    rows["key"] = np.arange(3_000)
    rows["value"] = rows["key"] * 0.5

    sample = fed(rows, size=64, seed=5, cut=100).sample

    assert (sample["value"] == sample["key"] * 0.5).all()


def test_merging_samples_the_union():
    left, right = np.arange(30), np.arange(30, 40)
    held = np.zeros(40)
    for seed in range(4_000):
        both = Reservoir.merge(
            fed(left, size=10, seed=seed, cut=9), fed(right, size=10, seed=seed + 10_000, cut=9), seed=seed
        )
        assert both.seen == 40
        held[both.sample] += 1

    assert np.abs(held - 1_000).max() < 4.5 * 27.4


def test_a_merged_reservoir_goes_on_sampling():
    held = np.zeros(60)
    for seed in range(4_000):
        both = Reservoir.merge(
            fed(np.arange(25), size=10, seed=seed, cut=9),
            fed(np.arange(25, 40), size=10, seed=-~seed, cut=9),
            seed=seed,
        )
        both.update(np.arange(40, 60))
        held[both.sample] += 1

    # binomial(4000, 1/6): standard deviation 23.6
    assert np.abs(held - 4_000 / 6).max() < 4.5 * 23.6


def test_reservoirs_of_different_size_are_not_merged():
    with pytest.raises(InvalidInputError, match="same size"):
        Reservoir.merge(Reservoir(5, seed=1), Reservoir(6, seed=1), seed=1)


def test_a_reservoir_without_room_is_refused():
    with pytest.raises(InvalidInputError, match="size must be at least 1"):
        Reservoir(0, seed=1)

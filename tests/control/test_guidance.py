"""What the controller has learned, on its way to where plans are made."""

import json

import pytest

from penstock.control.guidance import Guidance, collecting_seconds, fade, largest_kept
from penstock.model.batch import Batch
from penstock.model.load import Cost

LEARNED = Guidance(
    published_at=12.5,
    batch_id=7,
    committed_at=12.0,
    cost=Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=1e-6),
    largest_kept=20_000,
    tuples_per_unit=(1.5,),
    tuples_per_second=300.0,
    listed_share=0.2,
    listed_keep=0.9,
)


@pytest.mark.parametrize("guidance", [LEARNED, Guidance(published_at=0.0)])
def test_guidance_survives_json(guidance):
    assert Guidance.from_dict(json.loads(json.dumps(guidance.to_dict()))) == guidance


def test_guidance_of_an_earlier_version_without_newer_fields_is_understood():
    fields = {"published_at": 3.0, "cost": None, "largest_kept": 5}

    assert Guidance.from_dict(fields) == Guidance(published_at=3.0, largest_kept=5)


def test_an_average_starts_at_the_first_value_and_moves_by_its_weight():
    assert [fade(None, 10.0), fade(10.0, 20.0), fade(10.0, 20.0, weight=0.7)] == [10.0, 13.0, 17.0]


@pytest.mark.parametrize(
    ("kept", "seconds", "largest"),
    [
        (500, 0.5, 500),  # four times as many would take 2 s of 2.5 s
        (500, 0.625, 500),
        (500, 1.25, 250),  # twice as many at best
        (500, 2.5, 125),  # no more than these
        (500, 25.0, 100),  # a tenth of these: less than what went well before
        (50, 0.1, 100),
        (500, None, 100),
        (500, 0.0, 100),
    ],
)
def test_a_batch_counts_by_the_room_that_it_left(kept, seconds, largest):
    batch = Batch(batch_id=0, offered=kept, kept=kept, shed=0, keep=1.0, reason="fits", duration_seconds=seconds)

    assert largest_kept(100, batch, allowed_seconds=2.5, growth=4) == largest


@pytest.mark.parametrize(
    ("since_start", "since_commit", "seconds"),
    [
        (4.0, 0.0, 4.0),  # back to back: the oldest tuple came when the batch before started
        (4.0, 2.5, 4.0),  # at the next trigger, still the same
        (60.0, 56.0, 2.5),  # idle: whatever came, came within a trigger interval
        (60.0, None, 60.0),  # not known to be idle: down, perhaps
    ],
)
def test_a_long_time_without_a_batch_means_that_nothing_waited(since_start, since_commit, seconds):
    assert collecting_seconds(since_start=since_start, since_commit=since_commit, longest_batch_seconds=2.5) == seconds

"""What the controller has learned, on its way to where plans are made."""

import json

import pytest

from penstock.control.guidance import Guidance, collecting_seconds, fade, probe_rows
from penstock.model.batch import Batch
from penstock.model.forecast import Forecast
from penstock.model.load import Cost

LEARNED = Guidance(
    published_at=12.5,
    batch_id=7,
    committed_at=12.0,
    forecast=Forecast(cost=Cost(fixed_seconds=0.2, kept_seconds=1e-4, shed_seconds=1e-6), noise=0.1, late_factor=1.3),
    probe_rows=80_000.0,
    tuples_per_unit=(1.5,),
    tuples_per_second=300.0,
    listed_share=0.2,
    listed_keep=0.9,
)


@pytest.mark.parametrize("guidance", [LEARNED, Guidance(published_at=0.0)])
def test_guidance_survives_json(guidance):
    assert Guidance.from_dict(json.loads(json.dumps(guidance.to_dict()))) == guidance


def test_guidance_of_an_earlier_version_without_newer_fields_is_understood():
    fields = {"published_at": 3.0, "forecast": None, "probe_rows": 5.0}

    assert Guidance.from_dict(fields) == Guidance(published_at=3.0, probe_rows=5.0)


def test_an_average_starts_at_the_first_value_and_moves_by_its_weight():
    assert [fade(None, 10.0), fade(10.0, 20.0), fade(10.0, 20.0, weight=0.7)] == [10.0, 13.0, 17.0]


@pytest.mark.parametrize(
    ("so_far", "kept", "seconds", "rows"),
    [
        (None, 500, 0.5, None),  # four times as many are still fewer than what is tried first
        (None, 30_000, 0.5, 120_000),
        (None, 30_000, 1.25, 60_000),  # twice as many at best
        (120_000, 30_000, 1.25, 120_000),  # what went well once may be tried again
        (120_000, 30_000, 5.0, 15_000),  # half of these: less fits than was thought
        (None, 9_000, 30.0, None),  # few rows that take long: a cold query, and no word on rows
        (80_000, 9_000, 30.0, 80_000),
        (80_000, 500, None, 80_000),
        (80_000, 500, 0.0, 80_000),
    ],
)
def test_what_a_batch_tells_of_how_many_rows_may_be_tried(so_far, kept, seconds, rows):
    batch = Batch(batch_id=0, offered=kept, kept=kept, shed=0, keep=1.0, reason="fits", duration_seconds=seconds)

    assert probe_rows(so_far, batch, first_rows=20_000, allowed_seconds=2.5, growth=4) == rows


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

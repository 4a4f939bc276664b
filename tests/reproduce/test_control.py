"""The figure on the controller, with few seeds, and the machines that it runs on."""

import json

import pytest

from lab.reproduce.control import CASES, CLAIRVOYANT, FEEDBACK, PENSTOCK, control, recorded


def test_every_machine_has_its_claims_and_every_pilot_its_bars():
    figure = control(full=True, seeds=2)

    names = [*CASES, *(f"trace: {name}" for name in recorded())]
    assert [claim.text.rsplit(": ", 1)[0] for claim in figure.claims[::3]] == names
    assert {series.name for series in figure.series} == {PENSTOCK, CLAIRVOYANT, FEEDBACK}
    assert all(series.x == tuple(names) for series in figure.series)
    kept = {series.name: series.y for series in figure.series[:3]}
    assert kept[CLAIRVOYANT] == pytest.approx([1.0] * len(names))
    assert min(kept[PENSTOCK]) > 0.6


def test_a_trace_gives_a_machine_that_takes_as_long_as_the_recorded_one(tmp_path):
    # Twice as slow from the twentieth second on.
    batches = [
        [float(n), 5_000 + 100 * n, 5_000 + 100 * n, (0.2 + (5_000 + 100 * n) * 5e-5) * (1 + (n >= 20)), 0.1]
        for n in range(1, 60)
    ]
    trace = {"latency_seconds": 5.0, "trigger_seconds": 1.0, "burst_seconds": [10.0, 20.0], "batches": batches}
    (tmp_path / "slower.json").write_text(json.dumps(trace))

    case = recorded(tmp_path)["slower"]

    machine = case.machine(1)
    early, late = machine.next_batch(at=10), machine.next_batch(at=40)
    assert late.kept_seconds / early.kept_seconds == pytest.approx(2.0, rel=0.15)
    assert late.of(kept=8_000, shed=0) == pytest.approx(2 * (0.2 + 0.4), rel=0.15)
    assert case.arrivals.total_tuples == pytest.approx(sum(batch[1] for batch in batches), rel=1e-3)
    assert case.burst == (10.0, 20.0)

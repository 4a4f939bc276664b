"""What is shown, runs."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[1]


def output_of(script):
    """Run Python in a process of its own, as an example runs, and give what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_example_counts_its_clicks_and_says_what_it_shed():
    shortened = "from examples import clicks; clicks.main(seconds=1.5)"
    told = output_of(shortened)
    assert "306,000 offered = " in told
    assert "sum(shed)" in told


def test_the_kafka_example_is_verified_by_a_consumer_that_is_not_spark(kafka_jars):
    shortened = "from examples import kafka_to_kafka; kafka_to_kafka.main(seconds=2.0, warm_up_seconds=4.0)"
    told = output_of(shortened)
    assert "116,000 offered = " in told
    assert " answers, 0 of them doubled" in told


def test_the_network_of_the_example_answers_through_the_burst():
    shortened = "from examples import network; network.main(seconds=1.0, burst=20_000)"
    told = output_of(shortened)
    assert "22,000 offered = " in told
    assert "total_error" in told

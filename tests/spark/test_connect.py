"""Spark Connect, in a process of its own: one process cannot hold a classic and a remote session."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    command = [sys.executable, "-m", "tests.spark.connect_job", str(tmp_path_factory.mktemp("connect"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_session_is_remote(found):
    assert found["session"] == "pyspark.sql.connect.session"


def test_a_stateful_query_is_shed_and_counted(found):
    assert [dated for *_, dated in found["first"]] == [False, True, True]  # bounded from the second batch on
    for offered, kept, shed, keep, _ in found["first"]:
        assert offered == kept + shed == 5_000
        assert kept == pytest.approx(1_500, abs=200)
        assert keep == 0.3
    assert "offered = " in found["status"]
    assert found["frame"]


def test_counts_that_died_with_the_client_are_made_again_on_the_server(found):
    assert found["recounted"] == [True, True, True]


def test_each_batch_goes_to_a_function_on_the_server(found):
    assert found["each"] == [True, 2.0, 5_000]


def test_rows_are_spilled_on_the_server(found):
    for stored, offered, stored_shed, shed in found["spill"].values():
        assert stored == offered >= 10_000
        assert stored_shed == shed > 0


def test_aggregates_come_with_bounds(found):
    lower, value, upper, share = found["aggregates"]
    assert lower < value < upper
    assert lower < 5_000 < upper
    assert share == pytest.approx(0.4, abs=0.05)


def test_a_network_of_several_outputs_is_one_query_with_drops_on_its_arcs(found):
    network = found["network"]
    assert network["outputs"] == ["counts", "pairs out", "rows", "sums", "valued"]
    assert network["first batch"] > 0
    assert network["balanced"]
    count, error = network["window"]
    truth = 8_000 * 5 / 7
    assert abs(count - truth) <= max(5 * error, 0.002 * truth)


def test_what_cannot_work_says_so(found):
    assert "must be a streaming DataFrame" in found["collected"]
    assert found["damaged"].startswith("PlanLogError: ")
    assert found["in a worker"].startswith("PlanLogError: ")

"""A standalone master and two workers, own processes: every feature runs there."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from lab.servers.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = Path(__file__).with_name("cluster_features.py")
# A job that is over before its code is hot: most of its time would go to compiling.
HASTY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ROWS = 2_000


def can_hide(folder: Path) -> bool:
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(folder)]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """One job with all features; its driver works in a folder that the executors do not see, where that can be had."""
    shared = tmp_path_factory.mktemp("shared")
    # Sockets of Spark are in it too, and their names may not be long.
    with tempfile.TemporaryDirectory(prefix="driver-", ignore_cleanup_errors=True) as private:
        job = shutil.copy(JOB, private)
        hides = can_hide(Path(private))
        with Cluster(workers=2, hidden=[Path(private)] if hides else []) as cluster:
            settings = {"spark.driver.extraJavaOptions": HASTY, "spark.executor.extraJavaOptions": HASTY}
            done = cluster.submit(job, str(shared), settings=settings, folder=Path(private)).wait(600)
            assert done == 0, cluster.log_path.read_text()[-3000:]
    return {**json.loads((shared / "found.json").read_text()), "hides": hides}


def balanced(counts):
    return all(offered == kept + shed for offered, kept, shed in counts)


def test_executors_see_nothing_of_the_folder_in_which_the_driver_works(found):
    if not found["hides"]:
        pytest.skip("no mount namespaces here: executors see the disk of the driver")
    assert found["seen"] == ""  # and all that follows ran


def test_retries_and_speculative_copies_give_what_an_undisturbed_run_with_the_same_plans_gives(found):
    told = found["faults"]
    assert told["same"]
    assert told["rows"] == sum(kept for _, kept, _ in told["counts"][0])
    assert told["counts"][0] == told["counts"][1]
    # Batch 1 holds rows of a later attempt after a failure, batch 2 those of a copy that was faster.
    assert {1, 2} <= {batch for batch, attempt in told["attempts"] if attempt > 0}


def test_python_operators_shed_and_balance(found):
    assert balanced(found["operator"])
    assert sum(shed for *_, shed in found["operator"]) > 0


def test_rates_by_concept_hold_their_share(found):
    assert balanced(found["concept"])
    assert all(offered == ROWS and 0.4 < kept / offered < 0.6 for offered, kept, _ in found["concept"])


def test_window_aggregates_with_rates_of_their_own_are_answered(found):
    assert found["outputs"]["outputs"] == ["every", "tens"]
    assert balanced(found["outputs"]["counts"])
    assert sum(shed for *_, shed in found["outputs"]["counts"]) > 0


def test_a_network_drops_on_its_arcs_and_answers_every_output(found):
    assert found["network"]["outputs"] == ["rows", "sums"]
    assert balanced(found["network"]["arcs"])
    assert sum(shed for *_, shed in found["network"]["arcs"]) > 0


def test_windows_of_a_function_have_every_group(found):
    assert [kind for (kind,) in found["windows"]] == [str(number) for number in range(7)]


def test_a_join_of_two_streams_weighs_up_to_all_pairs(found):
    assert [kind for kind, _ in found["join"]] == [str(number) for number in range(7)]
    truth = [len(range(kind, ROWS, 7)) ** 2 for kind in range(7)]
    assert [pairs for _, pairs in found["join"]] == pytest.approx(truth, rel=0.01)

import json

import pytest

from penstock.cli import main
from penstock.demo.command import run_demo
from penstock.demo.timetable import IN_BURST
from penstock.model.errors import InvalidInputError
from penstock.policy.baseline import Uniform


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 2
    assert "demo" in capsys.readouterr().out


def test_a_demo_that_is_too_short_is_refused_before_spark_starts(capsys):
    assert main(["demo", "--seconds", "3"]) == 2
    assert "seconds must be at least 15, got 3; a burst needs time to show" in capsys.readouterr().err


def test_the_demo_names_a_missing_java(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["demo"]) == 2
    assert "no java on the PATH" in capsys.readouterr().err


def test_a_target_that_is_no_time_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="latency must be finite and above 0"):
        run_demo(seconds=60, latency_seconds=0, json_path=None, plot_path=None)


@pytest.mark.slow
@pytest.mark.apart
def test_a_short_demo_runs_and_writes_what_it_shows(tmp_path):
    """A short burst shows less than the real one: only its form is held to, and the error of all its answers together.

    A single window may hold few clicks, and on a machine that is busy with other tests few of them are kept.
    """
    from tests.separate import run_separately

    done = run_separately(
        "demo", "--seconds", "15", "--json", str(tmp_path / "d.json"), "--plot", str(tmp_path / "d.png")
    )
    told = json.loads((tmp_path / "d.json").read_text())
    assert done.returncode == (0 if all(claim["held"] for claim in told["claims"]) else 1), done.stderr
    assert [run["name"] for run in told["runs"]] == ["plain Spark", "Penstock"]
    assert [phase["phase"] for phase in told["runs"][1]["phases"]] == ["before", "during", "after"]
    assert told["runs"][0]["window_error_max"] == 0.0  # plain Spark's answers are the truth
    assert told["runs"][0]["total_error"] == 0.0
    # Five standard deviations of a sample at the least keep rate, of no more clicks than the burst alone has.
    clicks = told["settings"]["burst_tuples_per_second"] * IN_BURST * told["settings"]["seconds"]
    assert told["runs"][1]["total_error"] < 5 * ((1 / Uniform().min_keep - 1) / clicks) ** 0.5
    plain, log = (run["batch_log"] for run in told["runs"])
    before = [batch for batch in log if batch["phase"] == "before"]
    assert plain == []
    assert sum(batch["kept"] for batch in log) / sum(batch["offered"] for batch in log) == told["runs"][1]["kept_share"]
    assert ("Before the burst, " in done.stdout) == any(batch["kept"] < batch["offered"] for batch in before)
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
    assert "Latency of clicks" in done.stdout

import sys

import pytest

from penstock.cli import main
from penstock.demo.command import run_demo
from penstock.model.errors import InvalidInputError


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


def test_a_target_that_is_no_time_is_refused():
    with pytest.raises(InvalidInputError, match="latency must be finite and above 0"):
        run_demo(seconds=60, latency_seconds=0)


def test_without_the_lab_reproduce_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lab.reproduce.command", None)
    assert main(["reproduce", "las/fig4"]) == 2
    assert "in a checkout of it run: make setup" in capsys.readouterr().err

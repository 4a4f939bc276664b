"""Jars from Maven Central: what happens without it."""

import subprocess
import sys

import pytest

from penstock.model.errors import EnvironmentMissingError
from penstock.spark.packages import fetch
from tests.kafka import unless_missing

UNREACHABLE = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true" root="https://maven.invalid/"/></resolvers></ivysettings>"""


@pytest.fixture
def unreachable(tmp_path, monkeypatch):
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(UNREACHABLE)
    monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_repository_that_is_not_reached_is_said_with_the_cure(unreachable, tmp_path):
    with pytest.raises(EnvironmentMissingError, match=r"Maven Central is not reached.*PENSTOCK_IVY_SETTINGS"):
        fetch(["org.apache.commons:commons-pool2:2.13.1"], tmp_path / "jars", transitive=False)
    assert not (tmp_path / "jars").exists()


def test_what_is_in_the_cache_needs_no_repository(unreachable, tmp_path):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").touch()
    assert fetch(["x:a:1"], tmp_path / "jars", transitive=False) == (tmp_path / "jars" / "a.jar",)


def test_without_maven_central_the_kafka_tests_are_skipped_but_never_in_ci(monkeypatch):
    def missing():
        raise EnvironmentMissingError("Maven Central is not reached from here")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Kafka: Maven Central is not reached"):
        unless_missing(missing)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="with CI=true the tests of Kafka must run"):
        unless_missing(missing)


@pytest.mark.slow
def test_a_whole_run_without_maven_central_prints_the_reason(unreachable, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/spark/test_kafka_broker.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "SKIPPED" in done.stdout
    assert "Maven Central is not reached" in done.stdout

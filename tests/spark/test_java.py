import pytest

from penstock.model.errors import EnvironmentMissingError
from penstock.spark.java import java_major, require_java
from penstock.spark.session import local_session


def fake_java(folder, version_line, exit_code=0):
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)


def test_the_java_of_this_machine_is_found():
    assert require_java() >= 17


def test_a_missing_java_is_named_with_the_cure_before_spark_starts(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentMissingError, match=r"no java on the PATH and no JAVA_HOME; install a JDK or JRE 17"):
        local_session()


def test_a_java_home_without_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentMissingError, match=r"JAVA_HOME is .*but there is no .*bin/java; install"):
        require_java()


def test_a_java_that_is_too_old_is_named_with_its_version(monkeypatch, tmp_path):
    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentMissingError, match=r"needs Java 17 or newer, and .* is Java 11; install"):
        require_java()


def test_a_java_that_fails_or_says_nothing_is_named(monkeypatch, tmp_path):
    fake_java(tmp_path, "no version here", exit_code=0)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentMissingError, match="did not tell its version"):
        require_java()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(EnvironmentMissingError, match="cannot be run"):
        require_java()


@pytest.mark.parametrize(
    ("text", "major"), [('openjdk version "21" 2023-09-19', 21), ('java version "1.8.0_401"', 8), ("", None)]
)
def test_old_and_new_version_schemes_are_read(text, major):
    assert java_major(text) == major

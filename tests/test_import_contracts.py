"""The seams that keep policies free of Spark and the library usable on Spark Connect."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "penstock"

# What exists in classic PySpark only: Spark Connect has no JVM on the client's side.
CLASSIC_ONLY = frozenset({"_jvm", "_jdf", "sparkContext"})
CLASSIC_ADAPTER = PACKAGE / "spark" / "classic.py"


def lint_imports(*sources: Path) -> subprocess.CompletedProcess[str]:
    """Check the packages found in ``sources`` against the contracts of pyproject.toml."""
    script = Path(sys.executable).with_name("lint-imports")
    assert script.exists(), f"{script} is missing; run: make setup"
    return subprocess.run(
        [script, "--no-cache", "--config", ROOT / "pyproject.toml"],
        capture_output=True,
        text=True,
        check=False,
        cwd=sources[0],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources)), "COLUMNS": "100", "NO_COLOR": "1"},
    )


def classic_only_names(code: str) -> list[tuple[int, str]]:
    """List (line, name) wherever ``code`` reaches for the JVM; prose may mention the names."""
    found = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
                if name in CLASSIC_ONLY:
                    found.append((node.lineno, name))
    return sorted(found)


def test_the_import_contracts_hold():
    linted = lint_imports(ROOT, PACKAGE.parent)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("spark", "lab.sim"),
        ("demo", "lab.servers"),
        ("policy", "penstock.control"),
        ("policy", "penstock.estimate"),
        ("sketch", "penstock.policy"),
        ("model", "penstock.sketch"),
        ("control", "penstock"),
        ("model", "pyspark"),
        ("policy", "penstock.testing"),
        ("dashboard", "pyspark"),
    ],
)
def test_the_import_contracts_refuse(tmp_path, importer, imported):
    package = tmp_path / "penstock"
    for name in ("model", "sketch", "policy", "estimate", "control", "spark", "demo", "dashboard"):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    (package / "__init__.py").write_text("import penstock.spark\n")
    for name in ("sim", "servers"):
        (tmp_path / "lab" / name).mkdir(parents=True)
        (tmp_path / "lab" / name / "__init__.py").touch()
    (tmp_path / "lab" / "__init__.py").touch()
    (package / "testing.py").write_text("import pyspark\n")
    (package / importer / "planted.py").write_text(f"import {imported}\n")

    linted = lint_imports(tmp_path)

    assert linted.returncode == 1, linted.stdout + linted.stderr
    assert f"penstock.{importer}.planted -> {imported.removesuffix('.sql')}" in linted.stdout


def test_only_the_classic_adapter_reaches_for_the_jvm():
    trespasses = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != CLASSIC_ADAPTER
        for line, name in classic_only_names(path.read_text(encoding="utf-8"))
    ]
    assert not trespasses, (
        f"these break on Spark Connect; move them to {CLASSIC_ADAPTER.relative_to(ROOT)}:\n" + "\n".join(trespasses)
    )


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("frame._jdf.queryExecution()", [(1, "_jdf")]),
        ("spark = session\nspark.sparkContext.accumulator(0)", [(2, "sparkContext")]),
        ("getattr(session, '_jvm')", [(1, "_jvm")]),
        ('"""Spark Connect has no `_jvm`."""  # nor _jdf', []),
    ],
)
def test_reaching_for_the_jvm_is_told_from_mentioning_it(code, found):
    assert classic_only_names(code) == found

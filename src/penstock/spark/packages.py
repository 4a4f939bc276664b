"""Fetch jars from Maven Central once, with the Ivy that PySpark brings along: no Maven, no network afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from penstock.model.errors import EnvironmentMissingError
from penstock.spark.java import java_command

# The connector talks to brokers of any version through these clients.
CLIENTS = "org.apache.kafka:kafka-clients:3.9.2"
POOL = "org.apache.commons:commons-pool2:2.13.1"
# Connector and token provider are released with Spark. Where the repository lacks those of the installed one, an older
# pair that the tests have run on it is taken (docs/decisions/0050).
STAND_IN = ("4.2.0", "4.0.0")
FETCH_SECONDS = 300.0

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jars:
    """Jars in the cache: which ones, and what is to be said about them."""

    paths: tuple[Path, ...]
    note: str = ""

    def __str__(self) -> str:
        return ",".join(str(path) for path in self.paths)


def kafka_connector() -> Jars:
    """Find Spark's Kafka connector in the cache, or fetch it.

    Give the result to a session as ``spark.jars``, or add the jars to a running one with SQL's ``ADD JAR``.

    Examples
    --------
    >>> spark = ps.local_session(settings={"spark.jars": str(kafka_connector())})  # doctest: +SKIP
    """
    installed = pyspark.__version__
    for connector, provider in ((installed, installed), STAND_IN):
        wanted = (
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{provider}",
            CLIENTS,
            POOL,
        )
        folder = cache() / f"connector-{connector}"
        missing_before = cache() / f"connector-{installed}.missing"
        if connector == installed and _is_young(missing_before):
            continue
        try:
            paths = fetch(wanted, folder, transitive=False)
        except NotInRepositoryError:
            if connector != installed:
                raise
            missing_before.touch()
            continue
        note = "" if connector == installed else f"the repository has no Kafka connector {installed}: using {connector}"
        return Jars(paths=paths, note=note)
    raise AssertionError("the last pair is returned or raises")


def _is_young(marker: Path) -> bool:
    # A release may reach the repository later: asked for again once a day.
    return marker.exists() and time.time() - marker.stat().st_mtime < 86_400


class NotInRepositoryError(EnvironmentMissingError):
    """The repository was reached and does not hold what was asked for."""


def fetch(coordinates: Sequence[str], folder: Path, *, transitive: bool) -> tuple[Path, ...]:
    """Fetch jars, as ``group:artifact:version``, into a folder unless it is there already."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            _resolve(coordinates, Path(work), transitive=transitive)
            # Renamed at the end, so that a folder that is there is whole; another process may have been faster.
            try:
                (Path(work) / "jars").rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return tuple(sorted(folder.glob("*.jar")))


def cache() -> Path:
    """Folder for what is fetched once and kept: ``$XDG_CACHE_HOME/penstock``, or ``~/.cache/penstock``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def _resolve(coordinates: Sequence[str], work: Path, *, transitive: bool) -> None:
    settings = work / "ivysettings.xml"
    if own := os.environ.get("PENSTOCK_IVY_SETTINGS"):
        shutil.copy(own, settings)
    else:
        settings.write_text(_SETTINGS, encoding="utf-8")
    (work / "ivy.xml").write_text(_module(coordinates, transitive=transitive), encoding="utf-8")
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    pattern = str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")
    command = [java_command(), "-jar", str(ivy), "-settings", str(settings), "-cache", str(work / "cache")]
    # Some jars are packaged as OSGi bundles, which Ivy takes for another type.
    command += ["-ivy", str(work / "ivy.xml"), "-retrieve", pattern, "-types", "jar", "bundle"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired as cause:
        raise EnvironmentMissingError(
            f"{', '.join(coordinates)} did not arrive from Maven Central within {FETCH_SECONDS:.0f} s; try again later"
        ) from cause
    text = told.stdout + told.stderr
    if told.returncode == 0 and "UNRESOLVED DEPENDENCIES" not in text and "FAILED DOWNLOADS" not in text:
        return
    missing = [line.strip(" :\t") for line in text.splitlines() if line.strip().endswith(": not found")]
    # Ivy says "not found" of a host as of a file. Where some of the jars were found, the repository was reached.
    if 0 < len(set(missing)) < len(coordinates):
        raise NotInRepositoryError(f"Maven Central does not have {', '.join(missing)}; ask for a version that it has")
    raise EnvironmentMissingError(
        f"{', '.join(coordinates)} cannot be fetched, as Maven Central is not reached from here. Fetch once with a "
        f"network, copy {cache()} from a machine that has it, or name a mirror's Ivy settings in PENSTOCK_IVY_SETTINGS"
    )


def _module(coordinates: Sequence[str], *, transitive: bool) -> str:
    lines = []
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        lines.append(
            f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} "
            f'conf="default->default" transitive="{str(transitive).lower()}"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )

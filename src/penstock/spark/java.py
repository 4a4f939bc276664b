"""Name a missing or too old Java before Spark fails on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from penstock.model.errors import EnvironmentMissingError

MINIMUM = 17
CURE = (
    f"install a JDK or JRE {MINIMUM} (on Debian and Ubuntu: apt install openjdk-{MINIMUM}-jre-headless) "
    "and make sure that JAVA_HOME names it or that java is on the PATH"
)


def require_java() -> int:
    """Find the Java that Spark will use and return its major version; raise with the cure otherwise."""
    java = java_command()
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as cause:
        raise EnvironmentMissingError(f"Spark needs Java, and {java} cannot be run ({cause}); {CURE}") from cause
    major = java_major(told.stderr + told.stdout)
    if major is None:
        raise EnvironmentMissingError(f"{java} -version did not tell its version; {CURE}")
    if major < MINIMUM:
        raise EnvironmentMissingError(f"Spark needs Java {MINIMUM} or newer, and {java} is Java {major}; {CURE}")
    return major


def java_major(version_text: str) -> int | None:
    """Read the major version from what ``java -version`` prints.

    >>> java_major('openjdk version "17.0.15" 2025-04-15'), java_major('java version "1.8.0_401"'), java_major("?")
    (17, 8, None)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(found.group(1)) if found else None


def java_command() -> str:
    """Find the Java that Spark runs on."""
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not java.exists():
            raise EnvironmentMissingError(f"JAVA_HOME is {home}, but there is no {java}; {CURE}")
        return str(java)
    if found := shutil.which("java"):
        return found
    raise EnvironmentMissingError(f"Spark needs Java, and there is no java on the PATH and no JAVA_HOME; {CURE}")

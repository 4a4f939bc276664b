"""Run the command line in a process of its own, with a Spark session of its own."""

import subprocess
import sys
from pathlib import Path


def run_separately(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("penstock")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)

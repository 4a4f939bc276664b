"""All kinds of jobs, by the name that ``--kind`` takes."""

from __future__ import annotations

from benchmarks.kill.jobs import Job
from benchmarks.kill.row_jobs import Backfill, Network, Operator, Stream
from benchmarks.kill.window_jobs import Join, Windows

KINDS: dict[str, type[Job]] = {
    "stream": Stream,
    "network": Network,
    "operator": Operator,
    "windows": Windows,
    "join": Join,
    "backfill": Backfill,
}

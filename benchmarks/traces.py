"""Record a trace of a real run for ``penstock reproduce ours/control``: ``python -m benchmarks.traces FILE NAME``.

FILE is what ``penstock demo --json FILE`` or ``python examples/kafka_to_kafka.py --json FILE`` wrote.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from lab.reproduce.control import TRACES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="what a run wrote")
    parser.add_argument("name", help="name of the trace")
    given = parser.parse_args()
    told = json.loads(given.file.read_text(encoding="utf-8"))
    trace = of_demo(told) if "runs" in told else told
    lines = ",\n    ".join(json.dumps(batch) for batch in trace.pop("batches"))
    head = json.dumps(trace, indent=2).removesuffix("\n}")
    TRACES.mkdir(exist_ok=True)
    path = TRACES / f"{given.name}.json"
    path.write_text(f'{head},\n  "batches": [\n    {lines}\n  ]\n}}\n', encoding="utf-8")
    print(path)


def of_demo(told: dict[str, Any]) -> dict[str, Any]:
    """Boil the shed run of the demo down to its batches: started, offered, kept, seconds, seconds beside the job."""
    batches = told["runs"][-1]["batches"]
    burst = [batch["started_seconds"] for batch in batches if batch["phase"] == "burst"]
    return {
        "about": "penstock demo, the shed run: seconds since the stream began",
        "latency_seconds": told["settings"]["latency_seconds"],
        "trigger_seconds": 1.0,
        "burst_seconds": [round(burst[0], 2), round(burst[-1], 2)],
        "batches": [
            [
                round(batch["started_seconds"], 2),
                batch["offered"],
                batch["kept"],
                round(batch["duration_seconds"], 3),
                round((batch["spark_ms"]["triggerExecution"] - batch["spark_ms"]["addBatch"]) / 1000, 3),
            ]
            for batch in batches
        ],
    }


if __name__ == "__main__":
    main()

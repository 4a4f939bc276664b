"""The command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock import __version__
from penstock.model.errors import EnvironmentMissingError, PenstockError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it did what it is to show, 1 if a claim was not held, 2 if it could not run."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 2
    try:
        return int(chosen.run(chosen))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock", description="Load shedding for Spark Structured Streaming.")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    demo = commands.add_parser("demo", help="plain Spark and Penstock on the same bursty stream")
    demo.add_argument("--seconds", type=int, default=50, help="length of the stream (default: %(default)d)")
    demo.add_argument("--latency", type=float, default=5.0, help="latency target in seconds (default: %(default)g)")
    demo.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    demo.add_argument("--plot", type=Path, metavar="FILE", help="draw latency and rates over time, as a PNG")
    demo.add_argument(
        "--strict",
        action="store_true",
        help="fail also for what hangs on how steady this machine is, such as the target",
    )
    demo.set_defaults(run=_demo)

    reproduce = commands.add_parser("reproduce", help="compute the papers' figures again, in a checkout")
    try:
        from lab.reproduce.command import add_arguments, run
    except ImportError:
        reproduce.add_argument("rest", nargs="*", metavar="...")
        reproduce.set_defaults(run=_no_lab)
    else:
        add_arguments(reproduce)
        reproduce.set_defaults(run=run)

    backfill = commands.add_parser("backfill", help="make the answers of a burst exact afterwards (docs/backfill.md)")
    backfill.add_argument(
        "build",
        metavar="MODULE:FUNCTION",
        help="gets a session, returns (shedder or operator, query, window), or a network",
    )
    backfill.add_argument("--into", required=True, metavar="FOLDER", help="where rows and exact answers go")
    backfill.add_argument("--since", metavar="TIME", help="only windows that start at this event time or later")
    backfill.add_argument("--until", metavar="TIME", help="only windows that start before this event time")
    backfill.set_defaults(run=_backfill)
    return parser


def _backfill(chosen: argparse.Namespace) -> int:
    from penstock.spark.backfill.answers import run_backfill

    done = run_backfill(chosen.build, into=chosen.into, since=chosen.since, until=chosen.until)
    print(
        f"{done.batches} batches ({done.from_spill} from the spill, {done.batches - done.from_spill} from the source): "
        f"{done.rows:,} rows, of which {done.shed:,} had been shed; "
        f"exact answers are in {chosen.into}/exact"
    )
    for gap in done.gaps:
        print(gap)
    return 0


def _demo(chosen: argparse.Namespace) -> int:
    from penstock.demo.command import run_demo

    held = run_demo(
        seconds=chosen.seconds,
        latency_seconds=chosen.latency,
        json_path=chosen.json,
        plot_path=chosen.plot,
        strict=chosen.strict,
    )
    return 0 if held else 1


def _no_lab(_: argparse.Namespace) -> int:
    raise EnvironmentMissingError(
        "the figures are computed by the package lab, which is in Penstock's repository and not in its wheel; in a "
        "checkout of it run: make setup, then .venv/bin/penstock reproduce --list"
    )

from rich.console import Console

from penstock.demo.batches import DemoBatch
from penstock.demo.report import print_batch


def line(*, width=100, **given):
    batch = {
        "batch_id": 3, "phase": "burst", "first_row": 0, "offered": 57_000, "kept": 19_000, "started_seconds": 17.0,
        "duration_seconds": 2.4, "latency_seconds": 3.4, "reason": "load 2.81 > 1: 57,000 need 7 s", "spark_ms": {},
    }  # fmt: skip
    console = Console(width=width, force_terminal=False)
    with console.capture() as printed:
        print_batch(console, DemoBatch(**{**batch, **given}), latency_seconds=5)
    return printed.get()


def test_a_batch_is_one_plain_line_without_a_terminal():
    assert line() == "   19 s  burst     3.4 s  ███▌               57,000    19,000   33%  load 2.81 > 1\n"
    assert line(kept=57_000, reason="").split()[-1] == "all"


def test_a_long_reason_is_cut_and_not_wrapped():
    told = line(reason="word " * 50)
    assert told.count("\n") == 1
    assert told.rstrip().endswith("…")

import pandas as pd
import pytest
from rich.console import Console

from penstock.demo.batches import DemoBatch
from penstock.demo.figures import account_of, moods, promises, run_figures
from penstock.demo.plot import plot_demo
from penstock.demo.report import print_report
from penstock.demo.run import run_penstock, run_plain
from penstock.demo.speed import Speed

SECONDS = 8


@pytest.mark.spark
@pytest.mark.slow
def test_plain_spark_and_penstock_get_the_same_stream_and_account_for_every_row(spark, tmp_path):
    """Far too short for latencies to mean anything: only what must hold on any machine is held to."""
    speed = Speed()
    speed.observe(4_000, 2.0)
    lines: list[DemoBatch] = []
    plain = run_plain(spark, seconds=SECONDS, speed=speed, on_batch=lines.append)
    shed = run_penstock(spark, plain.arrivals, latency_seconds=5, on_batch=lines.append)

    assert lines == [*plain.batches, *shed.batches]
    assert shed.arrivals == plain.arrivals
    assert plain.arrivals.total_seconds == SECONDS
    assert [batch.first_row for batch in shed.batches] == [
        0, *pd.Series([batch.offered for batch in shed.batches]).cumsum()[:-1]
    ]  # fmt: skip
    assert sum(batch.offered for batch in shed.batches) == shed.arrivals.total_tuples

    figures, account = (run_figures(plain), run_figures(shed)), account_of(shed)
    *accounted, _ = claims = promises(*figures, account)
    assert [claim.text for claim in accounted if not claim.held] == []
    assert account.kept_in_answers == sum(batch.kept for batch in shed.batches) > 0
    assert 0 < len(shed.answers) <= len(shed.truth)

    console = Console(width=120)
    with console.capture() as printed:
        print_report(
            console, figures, account, claims=claims, shown=moods(*figures, latency_seconds=5), latency_seconds=5
        )
    assert "Latency of rows, arrival to commit (target 5 s)" in printed.get()
    plot_demo([plain, shed], tmp_path / "demo.png", latency_seconds=5)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")

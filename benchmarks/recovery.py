"""How soon latency is back inside its target after a fault, told from the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from penstock.model.batch import Batch

QUIET_BATCHES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What was done to a running query, and when (seconds since the epoch)."""

    what: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a fault did to latency, up to the next fault.

    Attributes
    ----------
    fault
        What happened.
    batches, late
        Batches committed after it whose latency is known, and how many of them were beyond the target.
    worst_seconds
        Their longest latency; None without batches.
    back_seconds, back_batches
        Time and batches from the fault up to and with the batch from which on none was late; None if there is none.
    """

    fault: Fault
    batches: int
    late: int
    worst_seconds: float | None
    back_seconds: float | None
    back_batches: int | None

    @property
    def is_back(self) -> bool:
        """Whether latency was inside the target at the end."""
        return self.back_seconds is not None

    def __str__(self) -> str:
        if self.back_seconds is None:
            told = f"{self.late} of {self.batches} batches were late"
            return f"{self.fault.what}: latency was NOT back inside the target by the end; {told}"
        return (
            f"{self.fault.what}: {_batches(self.late)} late, {self.worst_seconds:.1f} s at worst; "
            f"inside the target {self.back_seconds:.1f} s and {_batches(self.back_batches)} after it"
        )


def _batches(count: int | None) -> str:
    return f"{count} batch" if count == 1 else f"{count} batches"


def recoveries(batches: Iterable[Batch], faults: Sequence[Fault], *, target_seconds: float) -> list[Recovery]:
    """Judge every fault by the batches committed between it and the next one.

    A batch that runs when the fault strikes counts as after it. Batches without a latency (no rows, or counted again
    after a crash) say nothing, and are left out.

    Examples
    --------
    >>> def batch(number, latency):
    ...     times = {"started_at": float(number), "duration_seconds": 0.9, "latency_seconds": latency}
    ...     return Batch(batch_id=number, offered=1, kept=1, shed=0, keep=1.0, reason="fits", **times)
    >>> ran = [batch(number, latency) for number, latency in enumerate((2, 2, 6, 7, 3, 2))]
    >>> print(*recoveries(ran, [Fault(what="a worker is killed", at=2.5)], target_seconds=5))
    a worker is killed: 2 batches late, 7.0 s at worst; inside the target 2.4 s and 3 batches after it
    """
    ordered = sorted(faults, key=lambda fault: fault.at)
    known = [
        (batch.committed_at, batch.latency_seconds)
        for batch in sorted(batches, key=lambda batch: batch.batch_id)
        if batch.committed_at is not None and batch.latency_seconds is not None
    ]
    ends = [fault.at for fault in ordered[1:]] + [float("inf")]
    return [
        _judge(fault, [each for each in known if fault.at < each[0] <= end], target_seconds)
        for fault, end in zip(ordered, ends, strict=True)
    ]


def _judge(fault: Fault, after: list[tuple[float, float]], target_seconds: float) -> Recovery:
    late = [number for number, (_, latency) in enumerate(after) if latency > target_seconds]
    first_inside = late[-1] + 1 if late else 0
    back = after[first_inside] if first_inside < len(after) else None
    return Recovery(
        fault=fault,
        batches=len(after),
        late=len(late),
        worst_seconds=max((latency for _, latency in after), default=None),
        back_seconds=back[0] - fault.at if back else None,
        back_batches=first_inside + 1 if back else None,
    )


def undisturbed(batches: Iterable[Batch], *, before: float) -> str:
    """Say what the batches committed before a moment took: what the target has to leave room for.

    >>> def batch(number, seconds):
    ...     times = {"started_at": 10.0 * number, "duration_seconds": seconds, "latency_seconds": seconds + 1}
    ...     return Batch(batch_id=number, offered=1, kept=1, shed=0, keep=1.0, reason="fits", **times)
    >>> undisturbed([batch(number, seconds) for number, seconds in enumerate((22.0, 4.0, 1.0, 0.8))], before=40.0)
    'undisturbed: 4 batches took 22.0, 4.0, 1.0, 0.8 s; median latency of the last 4: 3.5 s'
    """
    quiet = [batch for batch in batches if batch.committed_at is not None and batch.committed_at < before]
    if not quiet:
        return "undisturbed: no batch"
    took = [f"{batch.duration_seconds:.1f}" for batch in quiet]
    told = took if len(took) <= 8 else [*took[:4], "...", *took[-4:]]
    last = [batch.latency_seconds for batch in quiet if batch.latency_seconds is not None][-QUIET_BATCHES:]
    return (
        f"undisturbed: {len(quiet)} batches took {', '.join(told)} s; "
        f"median latency of the last {len(last)}: {median(last):.1f} s"
    )


def recovery_table(
    found: Sequence[Recovery], *, since: float, target_seconds: float, evidence: Mapping[str, str]
) -> Table:
    """A row per fault; ``since`` is when the stream began, ``evidence`` what shows that one did strike, if known."""
    table = Table(title=f"latency against its target of {target_seconds:g} s", title_justify="left")
    for heading in ("fault", "seen", "at", "batches", "late", "worst latency", "back inside after"):
        table.add_column(heading, justify="left" if heading in ("fault", "seen") else "right")
    for each in found:
        worst = "-" if each.worst_seconds is None else f"{each.worst_seconds:.1f} s"
        back = f"{each.back_seconds:.1f} s, {_batches(each.back_batches)}" if each.is_back else "NEVER"
        what = each.fault.what
        struck_at = f"{each.fault.at - since:.0f} s"
        table.add_row(what, evidence.get(what, "-") or "NO", struck_at, str(each.batches), str(each.late), worst, back)
    return table

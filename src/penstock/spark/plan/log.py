"""The plan log: one immutable entry per batch, with all that is needed to judge the batch again."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock.control.governor import Decision
from penstock.control.guidance import Guidance
from penstock.model.errors import PenstockError, PlanLogError
from penstock.model.network_plan import NetworkPlan
from penstock.model.plan import NO_KEYS, ByGroup, Plan
from penstock.model.work_plan import WorkPlan
from penstock.spark.store.checksummed import seal, unseal
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

SAMPLING = "sampling.json"
# 2: one entry holds what an operator had in a second log, and the rules that decide on rows; blobs are in one place.
VERSION = 2
# A restart replays the batch that was not committed; a few more entries tell of damage early.
REPLAYABLE = 3
SETTLE_SECONDS = 0.25
# An unnamed blob that is younger may belong to an entry that is just being written.
BLOB_MATURE_SECONDS = 600.0
# So long a process relies on a blob that it has stored, before it writes it anew and so makes it young again.
BLOB_FRESH_SECONDS = BLOB_MATURE_SECONDS / 2
BLOB = ".txt"
BLOB_CURE = "restore the file from a copy; where only guidance.json names it, delete that instead, it is learned again"

_stored_at: dict[tuple[AnyPath, str], float] = {}


class PlanLog:
    """Entries in ``plans/``, what they name by digest in ``blobs/``, and the newest guidance.

    Whoever plans a batch first, wins: the entry is created atomically and never changed, so that retries, speculative
    copies and replays after a crash all find the same plan. Blobs are written before the entry that names them, so an
    entry that is there is whole.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._plans = folder_at(path / "plans")
        self._blobs = folder_at(path / "blobs")
        self._counts = folder_at(path / "counts")
        self._root = folder_at(path)
        # Of entries, which never change: the blobs that they name. And the blobs that nothing named at the last look.
        self._named: dict[int, frozenset[str]] = {}
        self._unnamed: frozenset[str] = frozenset()

    def decide(self, batch_id: int, make: Callable[[], Decision]) -> Decision:
        """Give the decision in force for a batch: the one in the log, or else what is made and entered now."""
        if (logged := self.decision(batch_id)) is not None:
            return logged
        decision = make()
        try:
            return self._enter(decision)
        except OSError as cause:
            raise PlanLogError(
                f"the plan of batch {decision.batch_id} cannot be written to {self.path} ({cause}), so the batch did "
                "not run: a replay could not shed the same rows. Make room or mend the disk, then start the query again"
            ) from cause

    def decision(self, batch_id: int) -> Decision | None:
        """Read the decision for a batch; None if it was never planned."""
        entry = self._entry(batch_id)
        if entry is None:
            return None
        decision = _to_decision(entry)
        digest = entry["rates"]
        if digest is None:
            return decision
        return replace(decision, plan=replace(decision.plan, key_keep=_rates(self._blobs.path, digest)))

    def put(self, blob: str) -> str:
        """Store a text once per content, to be named by the digest that this gives."""
        digest = _digest(blob)
        key, now = (self._blobs.path, digest), time.monotonic()
        if now - _stored_at.get(key, -BLOB_FRESH_SECONDS) >= BLOB_FRESH_SECONDS or not self._blobs.exists(
            f"{digest}{BLOB}"
        ):
            self._blobs.replace(f"{digest}{BLOB}", blob)
            if len(_stored_at) > 1_000:
                _stored_at.clear()
            _stored_at[key] = now
        return digest

    def get(self, digest: str) -> str:
        """Read a text that was put here."""
        return _read_blob(self._blobs.path, digest)

    def sealed(self, batch_id: int) -> str | None:
        """Read the entry of a batch as text, to be kept elsewhere; :func:`decision_in` reads it there."""
        return self._plans.read(f"{batch_id}.json")

    def recent(self, batch_id: int, count: int) -> list[Decision]:
        """List up to ``count`` decisions before a batch, oldest first, without their rates per key."""
        entries = (self._entry(earlier) for earlier in range(max(0, batch_id - count), batch_id))
        return [_to_decision(entry) for entry in entries if entry is not None]

    def record_counts(self, batch_id: int, counts: Mapping[str, Any]) -> None:
        """Store what a batch counted before it is committed; a replay stores the same again."""
        self._counts.replace(f"{batch_id}.json", seal({"counts": dict(counts)}, version=VERSION))

    def counts(self, batch_id: int) -> Mapping[str, Any] | None:
        """Read what a batch counted; None where that was left to Spark's progress."""
        name = f"{batch_id}.json"
        text = self._counts.read(name)
        if text is None:
            return None
        counts: dict[str, Any] = unseal(
            text, self._counts.path / name, version=VERSION, cure="delete it: it is counted again"
        )["counts"]
        return counts

    def publish(self, guidance: Guidance) -> None:
        """Replace the guidance that the next batches are planned with."""
        self._root.replace("guidance.json", seal(guidance.to_dict(), version=VERSION))

    def guidance(self) -> Guidance | None:
        """Read the newest guidance; None before the first."""
        text = self._root.read("guidance.json")
        if text is None:
            return None
        fields = unseal(text, self.path / "guidance.json", version=VERSION, cure="delete it: it is learned again")
        return Guidance.from_dict(fields)

    def verify(self) -> None:
        """Read the entries that a restart may need, and raise if one is damaged."""
        for batch_id in self._replayable():
            self.decision(batch_id)

    def replays_rates(self) -> bool:
        """Whether a batch that may be replayed has rates by key or output, whatever the policy is now."""
        entries = map(self._entry, self._replayable())
        return any(entry is not None and entry["rates"] is not None for entry in entries)

    def salt(self) -> str:
        """Tell the draws of this stage from those of all others: what the first start pinned, until then the address.

        A checkpoint that is moved or copied keeps its salt, and so judges a batch as it did the first time.
        """
        pinned = self._pinned_sampling()
        if pinned is None:
            # One local path may name two folders on two machines.
            return f"{socket.gethostname()}:{self.path}" if isinstance(self.path, Path) else str(self.path)
        if "salt" not in pinned:
            raise PlanLogError(
                f"{self.path / SAMPLING} names no salt: an earlier version of Penstock made it, which drew the same "
                "rows in every query; start from a new checkpoint"
            )
        return str(pinned["salt"])

    def pin_sampling(self, sampling: Mapping[str, Any]) -> None:
        """Refuse to go on with another row id, key, seed or salt: a replayed batch would keep other rows."""
        if self._root.create(SAMPLING, seal(sampling, version=VERSION)):
            return
        pinned = self._pinned_sampling() or {}
        changed = sorted(field for field in sampling if pinned.get(field) != sampling[field])
        if changed:
            was = ", ".join(f"{field}={pinned.get(field)!r}" for field in changed)
            raise PlanLogError(
                f"this checkpoint was made with {was}; with another one a replayed batch would keep other rows. "
                "Go back to it, or start from a new checkpoint"
            )

    def _pinned_sampling(self) -> dict[str, Any] | None:
        text = self._root.read(SAMPLING)
        if text is None:
            return None
        return unseal(text, self.path / SAMPLING, version=VERSION, cure="restore the file from a copy")

    def batch_ids(self) -> list[int]:
        """List the batches that have an entry."""
        return self._plans.ids(suffix=".json")

    def prune(self, *, before: int) -> None:
        """Remove the entries of batches that Spark can no longer replay, and blobs that nothing names any more."""
        for batch_id in self.batch_ids():
            if batch_id < before:
                self._plans.remove(f"{batch_id}.json")
                self._counts.remove(f"{batch_id}.json")
                self._named.pop(batch_id, None)
        ages = self._blobs.ages(suffix=BLOB)
        if not ages:
            return
        named = self._names()
        unnamed = frozenset(name for name in ages if name.removesuffix(BLOB) not in named)
        # Guidance that was replaced a moment ago may still be planned with: what it named goes at the next look.
        for name in unnamed & self._unnamed:
            if ages[name] > BLOB_MATURE_SECONDS:
                self._blobs.remove(name)
        self._unnamed = unnamed

    def _names(self) -> frozenset[str]:
        """List the blobs that entries and guidance name."""
        for batch_id in self.batch_ids():
            if batch_id not in self._named and (entry := self._entry(batch_id)) is not None:
                self._named[batch_id] = _names_in(entry.get("rates"), (entry.get("work") or {}).get("sketch"))
        guidance = self.guidance()
        newest = frozenset[str]()
        if guidance is not None:
            work, table = guidance.work, guidance.table
            newest = _names_in(work.sketch if work else None, table.digest if table else None)
        return newest.union(*self._named.values())

    def _replayable(self) -> list[int]:
        return self.batch_ids()[-REPLAYABLE:]

    def _enter(self, decision: Decision) -> Decision:
        rates = None
        if decision.plan.key_keep:
            rates = self.put(json.dumps(dict(sorted(decision.plan.key_keep.items())), ensure_ascii=False))
        fields = _to_fields(decision, rates=rates)
        if self._plans.create(f"{decision.batch_id}.json", seal(fields, version=VERSION)):
            return decision
        in_force = self.decision(decision.batch_id)
        if in_force is None:
            raise PlanLogError(f"plan entry {decision.batch_id} vanished from {self._plans.path} while it was read")
        return in_force

    def _entry(self, batch_id: int) -> dict[str, Any] | None:
        name = f"{batch_id}.json"
        text = self._plans.read(name)
        if text is None:
            return None
        cure = (
            f"batch {batch_id} must shed what it shed the first time, so restore the file from a copy; only if that "
            "batch was never committed, or its output may change, delete it"
        )
        try:
            return unseal(text, self._plans.path / name, version=VERSION, cure=cure)
        except PlanLogError:
            # Without hard links the name is there a moment before the text is whole: look again, once.
            time.sleep(SETTLE_SECONDS)
            return unseal(self._plans.read(name) or "", self._plans.path / name, version=VERSION, cure=cure)


def decision_in(text: str, path: AnyPath) -> Decision:
    """Read an entry that was kept elsewhere; of what it names by digest it has only the name."""
    return _to_decision(unseal(text, path, version=VERSION, cure="restore the file from a copy"))


def _to_fields(decision: Decision, *, rates: str | None) -> dict[str, Any]:
    plan = decision.plan
    fields: dict[str, Any] = {
        "batch": decision.batch_id,
        "decided_at": decision.decided_at,
        "expected_tuples": decision.expected_tuples,
        "keep": plan.keep,
        "reason": plan.reason,
        "rates": rates,
    }
    # Most plans have none of these: their entries stay short.
    parts = {"network": plan.network, "work": plan.work, "by_group": plan.by_group}
    written = {name: part.to_json() for name, part in parts.items() if part is not None}
    return {**fields, **written, **({"windows": plan.windows} if plan.windows is not None else {})}


def _to_decision(entry: Mapping[str, Any]) -> Decision:
    try:
        return Decision(
            batch_id=entry["batch"],
            decided_at=entry["decided_at"],
            plan=Plan(
                keep=entry["keep"],
                reason=entry["reason"],
                key_keep=NO_KEYS,
                network=NetworkPlan.from_json(entry["network"]) if "network" in entry else None,
                work=WorkPlan.from_json(entry["work"]) if "work" in entry else None,
                by_group=ByGroup(**entry["by_group"]) if "by_group" in entry else None,
                windows=entry.get("windows"),
            ),
            expected_tuples=entry["expected_tuples"],
        )
    except (KeyError, TypeError, ValueError, PenstockError) as cause:
        raise PlanLogError(f"plan entry {entry.get('batch')} is not a plan: {cause!r}") from cause


def _names_in(*digests: str | None) -> frozenset[str]:
    return frozenset(digest for digest in digests if digest is not None)


def _digest(blob: str) -> str:
    return hashlib.sha256(blob.encode()).hexdigest()[:16]


def _read_blob(folder: AnyPath, digest: str) -> str:
    path = folder / f"{digest}{BLOB}"
    try:
        blob = folder_at(folder).read(f"{digest}{BLOB}")
    except (OSError, UnicodeDecodeError) as cause:
        raise PlanLogError(
            f"{path}, which a plan or the guidance names, cannot be read ({cause}); {BLOB_CURE}"
        ) from cause
    if blob is None:
        raise PlanLogError(f"{path}, which a plan or the guidance names, cannot be read (it is gone); {BLOB_CURE}")
    if _digest(blob) != digest:
        raise PlanLogError(f"{path}, which a plan or the guidance names, does not match its name; {BLOB_CURE}")
    return blob


@lru_cache(maxsize=8)
def _rates(folder: AnyPath, digest: str) -> Mapping[str, float]:
    """Read a table of rates once per process: its name is the hash of its content, so it never changes."""
    rates: dict[str, float] = json.loads(_read_blob(folder, digest))
    return rates

"""The plan log: one immutable entry per batch id, so that a replayed batch sheds the same tuples."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock.control.governor import Decision
from penstock.control.guidance import Guidance
from penstock.model.errors import PenstockError, PlanLogError
from penstock.model.network_plan import NetworkPlan
from penstock.model.plan import NO_KEYS, Plan
from penstock.spark.store.checksummed import seal, unseal
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

VERSION = 1
SAMPLING = "sampling.json"
# A restart replays the batch that was not committed; a few more entries tell of damage early.
REPLAYABLE = 3
RATES_MATURE_SECONDS = 600.0
SETTLE_SECONDS = 0.25


class PlanLog:
    """Entries in ``plans/``, rates per key in ``rates/`` (once per table), and the newest guidance.

    Whoever plans a batch first, wins: the entry is created atomically and never changed, so that retries, speculative
    copies and replays after a crash all find the same plan.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._plans = folder_at(path / "plans")
        self._rates = folder_at(path / "rates")
        self._counts = folder_at(path / "counts")
        self._root = folder_at(path)

    def decision(self, batch_id: int) -> Decision | None:
        """Read the decision for a batch; None if it was never planned."""
        entry = self._entry(batch_id)
        if entry is None:
            return None
        decision = _to_decision(entry)
        digest = entry["rates"]
        if digest is None:
            return decision
        return replace(decision, plan=replace(decision.plan, key_keep=_rates(self._rates.path, digest)))

    def record(self, decision: Decision) -> Decision:
        """Write the decision for a batch unless there is one; either way return the one in force."""
        try:
            return self._record(decision)
        except OSError as cause:
            raise PlanLogError(
                f"the plan of batch {decision.batch_id} cannot be written to {self.path} ({cause}), so the batch did "
                "not run: a replay could not shed the same rows. Make room or mend the disk, then start the query again"
            ) from cause

    def _record(self, decision: Decision) -> Decision:
        digest = self._store_rates(decision.plan.key_keep)
        fields: dict[str, Any] = {
            "batch": decision.batch_id,
            "keep": decision.plan.keep,
            "rates": digest,
            "reason": decision.plan.reason,
            "decided_at": decision.decided_at,
            "expected_tuples": decision.expected_tuples,
        }
        if decision.plan.network is not None:
            fields["network"] = decision.plan.network.to_json()
        if self._plans.create(f"{decision.batch_id}.json", seal(fields, version=VERSION)):
            return decision
        in_force = self.decision(decision.batch_id)
        if in_force is None:
            raise PlanLogError(f"plan entry {decision.batch_id} vanished from {self._plans.path} while it was read")
        return in_force

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

    def publish_table(self, name: str, fields: Mapping[str, Any]) -> None:
        """Replace a table that plans are made from, such as a road map."""
        self._root.replace(f"{name}.json", seal({"table": dict(fields)}, version=VERSION))

    def table(self, name: str) -> Mapping[str, Any] | None:
        """Read a table that plans are made from; None before the first."""
        text = self._root.read(f"{name}.json")
        if text is None:
            return None
        fields: dict[str, Any] = unseal(
            text, self.path / f"{name}.json", version=VERSION, cure="delete it: it is made again"
        )["table"]
        return fields

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
        """Remove the entries of batches that Spark can no longer replay, and rates that no entry names."""
        outdated = [batch_id for batch_id in self.batch_ids() if batch_id < before]
        for batch_id in outdated:
            self._plans.remove(f"{batch_id}.json")
            self._counts.remove(f"{batch_id}.json")
        if outdated and (ages := self._rates.ages(suffix=".json")):
            named = {f"{entry['rates']}.json" for entry in map(self._entry, self.batch_ids()) if entry is not None}
            for name, age_seconds in ages.items():
                # A young table may belong to an entry that is just being written.
                if name not in named and age_seconds > RATES_MATURE_SECONDS:
                    self._rates.remove(name)

    def _replayable(self) -> list[int]:
        return self.batch_ids()[-REPLAYABLE:]

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

    def _store_rates(self, key_keep: Mapping[str, float]) -> str | None:
        if not key_keep:
            return None
        text = json.dumps(dict(sorted(key_keep.items())), ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        if not self._rates.exists(f"{digest}.json"):
            self._rates.create(f"{digest}.json", text)
        return digest


def decision_in(text: str, path: AnyPath) -> Decision:
    """Read an entry that was kept elsewhere; of rates per key it has only the name."""
    return _to_decision(unseal(text, path, version=VERSION, cure="restore the file from a copy"))


@lru_cache(maxsize=8)
def _rates(folder: AnyPath, digest: str) -> Mapping[str, float]:
    """Read a table of rates once per process: its name is the hash of its content, so it never changes."""
    path = folder / f"{digest}.json"
    try:
        text = folder_at(folder).read(f"{digest}.json")
    except OSError as cause:
        raise PlanLogError(
            f"the rates per key {path} cannot be read ({cause}); restore the file from a copy"
        ) from cause
    if text is None:
        raise PlanLogError(f"the rates per key {path} cannot be read (they are gone); restore the file from a copy")
    if hashlib.sha256(text.encode()).hexdigest()[:16] != digest:
        raise PlanLogError(f"the rates per key {path} do not match their name; restore the file from a copy")
    rates: dict[str, float] = json.loads(text)
    return rates


def _to_decision(entry: dict[str, Any]) -> Decision:
    try:
        return Decision(
            batch_id=entry["batch"],
            decided_at=entry["decided_at"],
            plan=Plan(
                keep=entry["keep"],
                reason=entry["reason"],
                key_keep=NO_KEYS,
                network=NetworkPlan.from_json(entry["network"]) if entry.get("network") else None,
            ),
            expected_tuples=entry["expected_tuples"],
        )
    except (KeyError, PenstockError) as cause:
        raise PlanLogError(f"plan entry {entry.get('batch')} is not a plan: {cause!r}") from cause

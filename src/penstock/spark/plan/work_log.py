"""The plan log of an operator: one immutable entry per batch, the learned costs once per content."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from penstock.control.workplan import Learned, PartitionState, WorkPlan
from penstock.model.errors import PlanLogError
from penstock.sketch.cost_pair import CostPair
from penstock.spark.store.checksummed import seal, unseal
from penstock.spark.store.folder import folder_at
from penstock.spark.store.paths import AnyPath

VERSION = 2


class WorkLog:
    """Entries in ``work/``, sketches in ``pairs/`` (named by their content), and the newest that was learned.

    An entry names its sketch by hash, and is created by whoever plans the batch first; retries, speculative copies and
    replays after a crash all find the same plan and the same sketch.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._work = folder_at(path / "work")
        self._pairs = folder_at(path / "pairs")
        self._root = folder_at(path)

    def plan(self, batch_id: int) -> tuple[WorkPlan, CostPair | None] | None:
        """Read the plan of a batch with its sketch; None if it was never planned."""
        name = f"{batch_id}.json"
        text = self._work.read(name)
        if text is None:
            return None
        cure = f"batch {batch_id} must shed what it shed the first time, so restore the file from a copy"
        fields = unseal(text, self._work.path / name, version=VERSION, cure=cure)
        digest = fields.pop("pair")
        fields["partitions"] = _states(fields["partitions"])
        return WorkPlan(**fields), self._pair(digest)

    def record(self, plan: WorkPlan, pair: CostPair | None) -> tuple[WorkPlan, CostPair | None]:
        """Write the plan of a batch unless there is one; either way return the one in force."""
        digest = self._store(pair) if plan.sheds and pair is not None else None
        if self._work.create(f"{plan.batch_id}.json", seal({**asdict(plan), "pair": digest}, version=VERSION)):
            return plan, pair if digest else None
        in_force = self.plan(plan.batch_id)
        if in_force is None:
            raise PlanLogError(f"plan entry {plan.batch_id} vanished from {self._work.path} while it was read")
        return in_force

    def publish(self, learned: Learned) -> None:
        """Replace what the next batches are planned with."""
        fields = {
            "published_at": learned.published_at,
            "batch_id": learned.batch_id,
            "fixed_seconds": learned.fixed_seconds,
            "pace": learned.pace,
            "partitions": {number: asdict(state) for number, state in learned.partitions.items()},
            "pair": self._store(learned.pair) if learned.pair is not None else None,
        }
        self._root.replace("learned.json", seal(fields, version=VERSION))

    def learned(self) -> Learned | None:
        """Read what was learned last; None before the first."""
        text = self._root.read("learned.json")
        if text is None:
            return None
        fields = unseal(text, self.path / "learned.json", version=VERSION, cure="delete it: costs are learned again")
        fields["partitions"] = _states(fields["partitions"])
        fields["pair"] = self._pair(fields["pair"])
        return Learned(**fields)

    def prune(self, *, before: int) -> None:
        """Remove entries that Spark can no longer replay, and sketches that nothing names."""
        ids = self._work.ids(suffix=".json")
        for batch_id in (number for number in ids if number < before):
            self._work.remove(f"{batch_id}.json")
        texts = [self._work.read(f"{number}.json") for number in ids if number >= before]
        texts.append(self._root.read("learned.json"))
        named = {f"{json.loads(text)['pair']}.txt" for text in texts if text}
        # The newest sketches may belong to an entry that is just being written.
        ages = self._pairs.ages(suffix=".txt")
        for name in sorted(ages, key=lambda name: -ages[name])[:-10]:
            if name not in named:
                self._pairs.remove(name)

    def _store(self, pair: CostPair) -> str:
        data = pair.to_bytes()
        digest = hashlib.sha256(data).hexdigest()[:16]
        if not self._pairs.exists(f"{digest}.txt"):
            self._pairs.create(f"{digest}.txt", base64.b64encode(data).decode())
        return digest

    def _pair(self, digest: str | None) -> CostPair | None:
        return None if digest is None else _read_pair(self._pairs.path, digest)


@lru_cache(maxsize=8)
def _read_pair(folder: AnyPath, digest: str) -> CostPair:
    """Read a sketch once per process: its name is the hash of its content, so it never changes."""
    name = f"{digest}.txt"
    path = folder / name
    try:
        text = folder_at(folder).read(name)
        data = base64.b64decode(text or "")
    except (OSError, ValueError) as cause:
        raise PlanLogError(f"the costs {path} cannot be read ({cause}); restore the file from a copy") from cause
    if text is None:
        raise PlanLogError(f"the costs {path} cannot be read (they are gone); restore the file from a copy")
    if hashlib.sha256(data).hexdigest()[:16] != digest:
        raise PlanLogError(f"the costs {path} do not match their name; restore the file from a copy")
    return CostPair.from_bytes(data)


def _states(fields: Mapping[str, Mapping[str, Any]]) -> dict[int, PartitionState]:
    return {int(number): PartitionState(**state) for number, state in fields.items()}

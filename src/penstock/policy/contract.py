"""What every policy promises."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from penstock.model.load import Load
from penstock.model.plan import Plan


@runtime_checkable
class Policy(Protocol):
    """Decide, once per batch, what to drop.

    A policy is a frozen value: it can be pickled, gives the same plan for the same load, reads no clock, and
    sheds nothing while the load fits. The conformance suite in ``tests/policy/test_conformance.py`` holds every
    policy to it.
    """

    def decide(self, load: Load) -> Plan:
        """Answer a load with a plan and its reason."""
        ...

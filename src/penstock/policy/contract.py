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

    A class whose plans never hold more than the common rate may say so with ``ONE_RATE = True``; batches are then a
    little cheaper to plan.
    """

    def decide(self, load: Load) -> Plan:
        """Answer a load with a plan and its reason."""
        ...


def has_one_rate(policy: Policy) -> bool:
    """Whether the policy promises that its plans hold nothing but the common rate.

    Only what its own class says counts: a subclass may decide otherwise.

    >>> from penstock.policy.baseline import Uniform
    >>> class ByKey(Uniform): ...
    >>> has_one_rate(Uniform()), has_one_rate(ByKey())
    (True, False)
    """
    return vars(type(policy)).get("ONE_RATE", False) is True

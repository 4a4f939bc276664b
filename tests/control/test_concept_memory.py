"""What the controller remembers of the keys of the batches so far."""

import pytest

from penstock.control.concept_memory import ConceptMemory
from penstock.control.controller import Controller
from penstock.control.governor import Governor
from penstock.model.batch import Batch


def test_keys_seen_once_are_not_known():
    memory = ConceptMemory()
    memory.learn(["a", "a", "b"])

    assert memory.shares() == {"a": 2 / 3}


def test_a_concept_that_has_drifted_away_is_forgotten():
    memory = ConceptMemory()
    memory.learn(["old"] * 4_000)
    for _ in range(17):
        memory.learn(["new"] * 4_000)

    assert set(memory.shares()) == {"new"}


def test_after_a_swap_the_new_frequencies_prevail_within_three_batches():
    memory = ConceptMemory()
    for _ in range(10):
        memory.learn(["a"] * 90 + ["b"] * 10)
    for _ in range(3):
        memory.learn(["a"] * 10 + ["b"] * 90)

    assert memory.shares()["b"] > 0.7


def test_a_key_that_was_frequent_and_is_rare_is_rare_after_one_batch():
    memory = ConceptMemory()
    for _ in range(10):
        memory.learn(["large"] * 3_000 + ["other"] * 1_000)

    memory.learn(["large"] * 3 + ["other"] * 3_997)

    assert memory.shares()["large"] == pytest.approx(3 / 4_000)


def test_chance_alone_is_no_change():
    memory = ConceptMemory()
    memory.learn(["a"] * 100 + ["b"] * 900)
    memory.learn(["a"] * 70 + ["b"] * 930)

    assert memory.shares()["a"] == pytest.approx((0.6 * 100 + 70) / (0.6 * 1_000 + 1_000))


def test_an_empty_sample_changes_nothing():
    memory = ConceptMemory({"a": 0.5})
    memory.learn([])

    assert memory.shares() == {"a": 0.5}


def test_shares_travel_in_the_guidance_and_survive_a_restart():
    controller = Controller(Governor(latency_seconds=5.0))
    batch = Batch(batch_id=0, offered=4, kept=4, shed=0, keep=1.0, reason="fits")
    controller.learn(batch, sampled_keys=["a", "a", "a", "b"])
    guidance = controller.guidance(now=1.0)

    assert guidance.key_shares == {"a": 0.75}
    assert Controller(Governor(latency_seconds=5.0), resume=guidance).guidance(now=2.0).key_shares == {"a": 0.75}

"""The broker of the tests, without Spark."""

import pytest

from tests.kafka import append, consume_all, filled_topic

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_a_broker_gives_back_what_it_got_also_after_it_was_killed(broker):
    topic = filled_topic(broker, [3, 0, 2])
    broker.stop(kill=True)
    broker.start()
    append(broker, topic, [0, 1, 0])
    rows = sorted((row["p"], row["n"]) for row in consume_all(broker, topic))
    assert rows == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]

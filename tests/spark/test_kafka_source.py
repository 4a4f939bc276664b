"""What the source that passes ranges over hands to its tasks, and what they read; without Spark."""

import json
from pathlib import Path

import pytest

import penstock as ps
from penstock.control.governor import Governor
from penstock.spark.sources.kafka import KafkaReader
from penstock.spark.sources.offsets import read_ranges
from tests.kafka import filled_topic


def reader(tasks, *, topic="t", client="{}"):
    return KafkaReader(
        topics=(topic,),
        client=client,
        starting="latest",
        log=Path("/nowhere"),
        governor=Governor(latency_seconds=5.0),
        tasks=tasks,
        weight="weight",
        draw=7,
    )


def offset(ends, starts, keep):
    return {"t": ends, "read": {"from": {"t": starts}, "millionths": round(keep * 1e6), "draw": 7}}


@pytest.mark.parametrize("keep", [1.0, 0.1])
@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_tasks_get_equal_shares_however_hot_a_partition_is(tasks, keep):
    starts, ends = {"0": 100, "1": 7, "2": 0}, {"0": 90_100, "1": 10_007, "2": 0}
    end = offset(ends, starts, keep)
    planned = reader(tasks).partitions({"t": starts}, end)
    sizes = [sum(block.end - block.start for block in task.blocks) for task in planned]
    assert len(sizes) == tasks
    assert max(sizes) - min(sizes) <= tasks
    read = {number for each in read_ranges(json.dumps(end))["t", 0] for number in range(each.start, each.end)}
    got = [
        number
        for task in planned
        for block in task.blocks
        if block.partition == 0
        for number in range(block.start, block.end)
    ]
    assert len(got) == len(set(got))
    assert set(got) == read


def test_a_batch_without_offsets_has_no_tasks():
    assert reader(2).partitions({"t": {"0": 5}}, {"t": {"0": 5}}) == []
    assert reader(2).partitions({"t": {"0": 5}}, offset({"0": 5}, {"0": 5}, 1.0)) == []


@pytest.mark.server
@pytest.mark.slow
def test_a_topic_that_is_not_there_is_named(broker):
    client = json.dumps({"bootstrap.servers": broker.servers})
    with pytest.raises(ps.InvalidInputError, match="the topic 'nowhere' cannot be read"):
        reader(1, topic="nowhere", client=client).initialOffset()


@pytest.mark.server
@pytest.mark.slow
def test_what_is_read_is_what_was_planned_row_by_row(broker, tmp_path):
    """Offsets, tasks and blocks against a broker: each planned offset once, with its weight, and none beside them."""
    topic = filled_topic(broker, [9_000, 3_000])
    client = json.dumps({"bootstrap.servers": broker.servers})
    source = KafkaReader(
        topics=(topic,),
        client=client,
        starting="earliest",
        log=tmp_path,
        governor=Governor(latency_seconds=5.0, probe_tuples=100),
        tasks=3,
        weight="weight",
        draw=7,
    )
    start = source.initialOffset()
    end = source.latestOffset(start, None)
    assert end["read"]["millionths"] == round(2_500 / 12_000 * 1e6)  # 25 times what a first batch may keep
    assert source.latestOffset(end, None) == end  # nothing new: the offset stays as it is, share and all
    rows = [row for task in source.partitions(start, end) for batch in source.read(task) for row in batch.to_pylist()]
    planned = {
        (partition, number): each.weight
        for (_, partition), ranges in read_ranges(end).items()
        for each in ranges
        for number in range(each.start, each.end)
    }
    assert {(row["partition"], row["offset"]): row["weight"] for row in rows} == planned
    assert len(rows) == len(planned)
    assert all(json.loads(row["value"]) == {"p": row["partition"], "n": row["offset"]} for row in rows)
    assert sum(row["weight"] for row in rows) == pytest.approx(12_000)

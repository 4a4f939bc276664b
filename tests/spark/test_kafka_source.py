"""What the source that passes ranges over hands to its tasks; no broker is asked."""

import json

import pytest

from penstock.spark.kafka import KafkaReader
from penstock.spark.offsets import read_ranges


def reader(tasks):
    return KafkaReader(
        topics=("t",), client="{}", starting="latest", log="/nowhere", governor="{}", tasks=tasks, weight="weight"
    )


def offset(ends, starts, keep):
    return {"t": ends, "read": {"from": {"t": starts}, "millionths": round(keep * 1e6)}}


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

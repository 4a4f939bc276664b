import json

import pytest

from penstock.spark.sources.offsets import (
    OffsetEntry,
    batch_units,
    initial_offsets,
    partition_units,
    read_entry,
    units_between,
    unread_units,
)


@pytest.mark.parametrize(
    ("start", "end", "units"),
    [
        ('{"t":{"0":100,"1":40}}', '{"t":{"0":150,"1":45}}', 55),
        ('{"t":{"0":100}}', '{"t":{"0":150,"1":45}}', 50),  # a new partition: its start is not known
        ('{"t":{"0":100}}', '{"t":{"0":90}}', 0),  # a topic made anew never counts backwards
        ("5", "9", 4),
        (None, "9", 9),
        ('{"offset":10,"timestamp":1000}', '{"offset":30,"timestamp":2000}', 20),
        ('{"logOffset":3}', '{"logOffset":4}', None),
        ('{"reservoirVersion":3,"index":5}', '{"reservoirVersion":4,"index":-1}', None),
        (None, '{"t":{"0":150}}', None),
        ("x", "y", None),
        ('{"ts":1700000000000}', '{"ts":1700000001000}', None),  # a time is no count
        (None, '{"snapshot_id":8123456789012345678}', None),
        ('{"t":null}', '{"t":"abc"}', None),
    ],
)
def test_units_are_counted_where_offsets_count_tuples(start, end, units):
    assert units_between(start, end) == units


def test_units_are_told_apart_by_source_and_unknown_where_one_does_not_count():
    first = OffsetEntry(batch_seconds=0, sources=("10", '{"t":{"0":5}}'))
    second = OffsetEntry(batch_seconds=1, sources=("14", '{"t":{"0":8}}'))
    assert batch_units(first, second) == (4, 3)
    assert batch_units(None, OffsetEntry(batch_seconds=0, sources=("14",))) == (14,)
    assert batch_units(first, OffsetEntry(batch_seconds=1, sources=("14", '{"logOffset":1}'))) == (4, None)
    assert batch_units(first, OffsetEntry(batch_seconds=1, sources=("14", "-"))) == (4, 0)
    assert batch_units(first, OffsetEntry(batch_seconds=1, sources=("14",))) == ()  # not the same sources


def test_an_offset_file_that_is_not_known_is_passed_over(tmp_path):
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text('v1\n{"batchTimestampMs":1500,"batchWatermarkMs":250}\n{"tuples":4}')
    (offsets / "1").write_text('v9\n{"batchTimestampMs":1500}\n{"tuples":4}')
    (offsets / "2").write_text("v1\n" + json.dumps({}) + "\n4")
    first = OffsetEntry(batch_seconds=1.5, watermark_micros=250_000, sources=('{"tuples":4}',))
    assert read_entry(tmp_path, 0) == first
    assert [read_entry(tmp_path, batch_id) for batch_id in (1, 2, 3)] == [None, None, None]


def test_the_first_batch_of_a_kafka_query_starts_where_the_source_wrote_down(tmp_path):
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text('\x00v1\n{"t":{"0":100,"1":40}}')
    entry = OffsetEntry(batch_seconds=0, sources=('{"t":{"0":150,"1":45}}', '{"tuples":7}'))
    initial = initial_offsets(tmp_path, entry)
    assert initial == ('{"t":{"0":100,"1":40}}', None)
    assert batch_units(None, entry, initial=initial) == (55, 7)


def test_units_that_a_source_passes_over_unread_are_told_apart():
    end = json.dumps({"t": {"0": 90_000}, "read": {"from": {"t": {"0": 10_000}}, "millionths": 250_000, "draw": 7}})
    entry = OffsetEntry(batch_seconds=0, sources=(end,))
    assert unread_units(end) == 60_000
    assert batch_units(OffsetEntry(batch_seconds=0, sources=('{"t":{"0":10000}}',)), entry) == (20_000,)
    assert unread_units('{"t":{"0":90000}}') == 0


def test_partitions_are_counted_one_by_one():
    assert partition_units('{"t":{"0":1,"1":4}}', '{"t":{"0":9,"1":4}}') == {"t-0": 8, "t-1": 0}
    assert partition_units('{"tuples":4}', '{"tuples":9}') == {}
    assert partition_units(None, '{"t":{"0":9}}') == {}

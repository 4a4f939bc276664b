import json

import pytest

from penstock.spark.offsets import OffsetEntry, batch_units, read_entry, units_between


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


def test_units_of_all_sources_add_up_or_are_unknown():
    first = OffsetEntry(batch_seconds=0, sources=("10", '{"t":{"0":5}}'))
    second = OffsetEntry(batch_seconds=1, sources=("14", '{"t":{"0":8}}'))
    assert batch_units(first, second) == 7
    assert batch_units(None, OffsetEntry(batch_seconds=0, sources=("14",))) == 14
    assert batch_units(first, OffsetEntry(batch_seconds=1, sources=("14", '{"logOffset":1}'))) is None
    assert batch_units(first, OffsetEntry(batch_seconds=1, sources=("14", "-"))) == 4


def test_an_offset_file_that_is_not_known_is_passed_over(tmp_path):
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text('v1\n{"batchTimestampMs":1500}\n{"tuples":4}')
    (offsets / "1").write_text('v9\n{"batchTimestampMs":1500}\n{"tuples":4}')
    (offsets / "2").write_text("v1\n" + json.dumps({}) + "\n4")
    assert read_entry(tmp_path, 0) == OffsetEntry(batch_seconds=1.5, sources=('{"tuples":4}',))
    assert [read_entry(tmp_path, batch_id) for batch_id in (1, 2, 3)] == [None, None, None]

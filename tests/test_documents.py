"""What the documents show runs: every Python block of them, in order, as a reader would paste them."""

import re
import threading
from pathlib import Path

import pytest
from pyspark.sql import functions as F

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def patient_reader(spark):
    """Stop each query after its second batch: the documents let theirs run for ever."""
    done = threading.Event()

    def stop_queries():
        while not done.wait(0.5):
            for query in spark.streams.active:
                progress = query.lastProgress
                if progress is not None and progress["batchId"] >= 1:
                    query.stop()

    thread = threading.Thread(target=stop_queries, daemon=True)
    thread.start()
    yield
    done.set()
    thread.join()
    for query in spark.streams.active:
        query.stop()


@pytest.mark.spark
@pytest.mark.parametrize("document", ["README.md", "docs/guide.md", "docs/concept.md"])
def test_the_blocks_of_a_document_run(spark, tmp_path, patient_reader, document):
    # The streams that the texts take for granted: clicks from somewhere like Kafka.
    rate = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    events = rate.withColumns(
        {"partition": F.col("value") % 2, "offset": F.col("value"), "campaign": (F.col("value") % 5).cast("string")}
    )
    names = {"spark": spark, "events": events}
    blocks = BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    assert blocks
    for number, block in enumerate(blocks):
        local = re.sub(r"/(data|tmp/penstock-guide)\b", str(tmp_path), block)
        exec(compile(local, f"{document}, block {number + 1}", "exec"), names)

"""Leave the classes that Spark loads for a stream in an archive, from which Java starts in half the time.

``JDK_JAVA_OPTIONS=-XX:ArchiveClassesAtExit=FILE.new python -m tests.spark.class_archive FILE``
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from tests.spark.streams import always_shedding, finish_batches, numbers


def run_some(spark: SparkSession, folder: str) -> None:
    """Shed, store what was shed, keep windows as state, write files, read them again."""
    policy, spill = ps.Uniform(keep=0.5), ps.Spill(f"{folder}/spill", rows="all")
    shedder = always_shedding(f"{folder}/checkpoint", policy, spill=spill)
    window = F.window("timestamp", "1 second")

    def counts(rows):
        return rows.withWatermark("timestamp", "0 seconds").groupBy(window).agg(ps.count().alias("rows"))

    writer = counts(numbers(spark).transform(shedder)).writeStream.format("parquet").option("path", f"{folder}/out")
    finish_batches(shedder.start(writer), 3)
    shedder.spilled().count()
    spark.read.parquet(f"{folder}/out").orderBy("window").collect()


def main(archive: Path) -> None:
    spark = ps.local_session()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run_some(spark, folder)
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()
    # Java maps whatever is there under the name, whole or not.
    archive.with_suffix(archive.suffix + ".new").rename(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Spark's classes, loaded once and kept in a file (Java calls it AppCDS): starts in half the time.

The file has about 160 MB, and to make it takes longer than some runs: so it is made when somebody
asks for it, and used wherever it is there.

    python -m penstock.spark.run.jvm_archive
"""

import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from penstock.spark.errors import MissingPartError
from penstock.spark.run.java import Java, cache_directory, find_java, require_spark

_WORK = """
import sys
from penstock.spark.pipeline.model import PipelineSpec
from penstock.spark.run.session import query_session, session

options, folder = sys.argv[1:]
settings = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "1"}
spec = PipelineSpec(name="p", bootstrap_servers="", sources=(), sinks=(), spark=settings)
spark = session(spec, "local[1]", short=True)
frame = query_session(spark, spec).readStream.format("rate-micro-batch")
frame = frame.option("rowsPerBatch", 9).load()
counted = frame.groupBy("value").count()
query = (
    counted.writeStream.outputMode("update")
    .option("checkpointLocation", folder)
    .foreachBatch(lambda rows, number: rows.toArrow())
    .trigger(once=True)
    .start()
)
query.awaitTermination()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def archive_of(java: Java, cache: Path) -> Path:
    """Where the file for this Java and this Spark is, or would be."""
    from pyspark import __file__ as spark_file
    from pyspark import __version__

    name = f"{java.program}\n{java.program.stat().st_mtime_ns}\n{spark_file}\n{__version__}"
    return cache / f"spark-{__version__}-{sha256(name.encode()).hexdigest()[:12]}.jsa"


def options_for(archive: Path) -> str:
    """For the JVM; it goes on without a file that does not fit."""
    return f'"-XX:SharedArchiveFile={archive}" -Xshare:auto -Xlog:disable -Xlog:all=error:stderr'


def make_archive(cache: Path | None = None) -> Path:
    """Make the file, unless it is there. Takes half a minute."""
    require_spark()
    folder = cache_directory(os.environ) if cache is None else cache
    made = archive_of(find_java(os.environ, folder), folder)
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        written = Path(temporary) / "archive.jsa"
        options = f'"-XX:ArchiveClassesAtExit={written}" -Xlog:disable -Xlog:all=error:stderr'
        done = subprocess.run(
            [sys.executable, "-c", _WORK, options, f"{temporary}/checkpoint"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not written.exists():
            raise MissingPartError(
                f"Java made no archive of Spark's classes: {done.stderr[-1000:]}"
            )
        # Whoever was faster made the same.
        os.replace(written, made)
    return made


if __name__ == "__main__":
    make_archive()

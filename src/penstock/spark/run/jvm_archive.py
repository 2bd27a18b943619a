"""A class data sharing archive (AppCDS) of Spark's classes: with it Spark starts in half the time.

The file has about 160 MB, and creating it takes longer than some runs. So it is created on request
only, and used whenever it exists:

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

options, checkpoint = sys.argv[1:]
settings = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "1"}
spec = PipelineSpec(name="p", bootstrap_servers="", sources=(), sinks=(), spark=settings)
spark = session(spec, "local[1]", short=True)
frame = query_session(spark, spec).readStream.format("rate-micro-batch")
frame = frame.option("rowsPerBatch", 9).load()
counted = frame.groupBy("value").count()
query = (
    counted.writeStream.outputMode("update")
    .option("checkpointLocation", checkpoint)
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
    """Returns the path of the archive for this Java and this Spark, whether it exists or not."""
    from pyspark import __file__ as spark_file
    from pyspark import __version__

    spark = Path(spark_file).resolve()
    name = f"{java.program}\n{java.program.stat().st_mtime_ns}\n{spark}\n{__version__}"
    return cache / f"spark-{__version__}-{sha256(name.encode()).hexdigest()[:12]}.jsa"


def options_for(archive: Path) -> str:
    """Returns the JVM's options; the JVM ignores an archive that does not match."""
    return f'"-XX:SharedArchiveFile={archive}" -Xshare:auto -Xlog:disable -Xlog:all=error:stderr'


def make_archive(cache: Path | None = None) -> Path:
    """Creates the archive unless it exists, and returns its path. Takes half a minute."""
    require_spark()
    directory = cache_directory(os.environ) if cache is None else cache
    archive = archive_of(find_java(os.environ, directory), directory)
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        written = Path(temporary) / "archive.jsa"
        options = f'"-XX:ArchiveClassesAtExit={written}" -Xlog:disable -Xlog:all=error:stderr'
        process = subprocess.run(
            [sys.executable, "-c", _WORK, options, f"{temporary}/checkpoint"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode or not written.exists():
            raise MissingPartError(
                f"Java created no archive of Spark's classes: {process.stderr[-1000:]}"
            )
        # Another process may have created the same archive first.
        os.replace(written, archive)
    return archive


if __name__ == "__main__":
    make_archive()

"""Spark and topics: `format("penstock")` and Spark's own connector, `format("kafka")`.

Both read and write topics of one broker, alternately in one session, so that disturbances of the
machine affect both. A figure is the median of the rounds after a warm-up, which is long because the
JVM compiles frequent code. Broker, JVM and, for Penstock, two Python workers share two cores;
processor time is that of all of them, and is the most reliable figure if other programs run.
"""

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.broker_process import Server, start_broker
from bench.report import Row, at_least
from penstock.client import Admin, Producer
from penstock.client.admin import NewTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS: Final = 5
WARM_UP: Final = 3
PARTITIONS: Final = 2
RECORDS: Final = {100: 2_000_000, 1000: 400_000}
"""By the bytes of a value."""
KEYS: Final = 8
LIST: Final = 10_000
FORMATS: Final = ("penstock", "kafka")
WRITTEN: Final = 200_000
"""The number of rows of 100 bytes in one write."""
SMALL: Final = 100
"""The number of records of a small topic, to measure overhead."""
CONNECTOR: Final = Path(__file__).resolve().parents[1] / ".parts" / "spark-kafka" / "libs"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


class Cost(NamedTuple):
    seconds: float
    cpu: float


Action = Callable[[], None]


def run() -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as directory,
        start_broker(Path(directory), {"log.segment.bytes": str(1 << 30)}) as broker,
        _session() as (spark, jvm),
    ):
        # Other benchmarks pin the broker to one core; here all processes share the cores.
        os.sched_setaffinity(broker.pid, os.sched_getaffinity(0))
        address = f"{broker.address[0]}:{broker.address[1]}"
        rows: list[Row] = []
        for size, count in RECORDS.items():
            _fill(address, f"values-{size}", size, count)
            for sink, act in (("noop", _noop), ("aggregation", _aggregation)):
                actions = {
                    name: _reading(spark, name, address, f"values-{size}", act) for name in FORMATS
                }
                rows += _compare(f"{size} bytes, {sink}", count, _medians(broker, jvm, actions))
        actions = {name: _streaming(spark, name, address, Path(directory)) for name in FORMATS}
        rows += _compare(
            "100 bytes, AvailableNow", RECORDS[100], _medians(broker, jvm, actions), is_target=False
        )
        rows += _writes(spark, address, broker, jvm)
        _fill(address, "small", 100, SMALL)
        actions = {name: _reading(spark, name, address, "small", _noop) for name in FORMATS}
        for name, cost in _medians(broker, jvm, actions).items():
            rows.append(Row(f"{SMALL} records, noop: {name}", cost.seconds * 1000, "ms"))
        return rows


@contextmanager
def _session() -> "Iterator[tuple[SparkSession, int]]":
    """And the id of its JVM's process."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession
    jars = sorted(map(str, CONNECTOR.glob("*.jar")))
    if not jars:
        raise FileNotFoundError("Spark's Kafka connector is missing: run `make setup-parts`")
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    gateway = session.sparkContext._gateway
    assert gateway is not None
    try:
        yield session, gateway.proc.pid
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)


def _fill(address: str, topic: str, size: int, count: int) -> None:
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    with Producer(bootstrap_servers=address) as producer:
        keys = [b"key-%d" % (number % KEYS) for number in range(LIST)]
        per_partition = count // PARTITIONS
        for partition in range(PARTITIONS):
            for start in range(0, per_partition, LIST):
                many = min(LIST, per_partition - start)
                producer.send_many(topic, [b"v" * size] * many, keys[:many], partition=partition)
        producer.flush()


def _noop(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _aggregation(frame: "DataFrame") -> None:
    lengths = frame.selectExpr("key", "length(value) AS size")
    groups = lengths.groupBy("key").agg({"*": "count", "size": "sum"}).collect()
    assert len(groups) == KEYS


def _reading(
    spark: "SparkSession", name: str, address: str, topic: str, act: "Callable[[DataFrame], None]"
) -> Action:
    def read() -> None:
        options = {"kafka.bootstrap.servers": address, "subscribe": topic}
        act(spark.read.format(name).options(**options).load())

    return read


def _streaming(spark: "SparkSession", name: str, address: str, directory: Path) -> Action:
    def read() -> None:
        options = {
            "kafka.bootstrap.servers": address,
            "subscribe": "values-100",
            "startingOffsets": "earliest",
        }
        checkpoint = tempfile.mkdtemp(dir=directory)
        query = (
            spark.readStream.format(name)
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return read


def _writes(spark: "SparkSession", address: str, broker: Server, jvm: int) -> list[Row]:
    """Spark's own sink has no transactions, so those of Penstock are compared with its writes."""
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS) for name in FORMATS])
    frame = spark.range(0, WRITTEN, 1, PARTITIONS).selectExpr(
        f"concat('key-', id % {KEYS}) AS key", "repeat('v', 100) AS value"
    )

    def writing(name: str, **options: str) -> Action:
        writer = frame.write.format(name).mode("append").options(topic=name, **options)
        return writer.option("kafka.bootstrap.servers", address).save

    rows: list[Row] = []
    for what, options in (("written", {}), ("in a transaction", {"transactional": "true"})):
        actions = {"penstock": writing("penstock", **options), "kafka": writing("kafka")}
        costs = _medians(broker, jvm, actions)
        rows += _compare(f"100 bytes, {what}", WRITTEN, costs, is_target=False)
    return rows


def _medians(broker: Server, jvm: int, actions: dict[str, Action]) -> dict[str, Cost]:
    taken: dict[str, list[Cost]] = {name: [] for name in actions}
    for number in range(WARM_UP + ROUNDS):
        for name, action in actions.items():
            cpu = broker.cpu_seconds() + _cpu_of_tree(jvm)
            start = time.perf_counter()
            action()
            seconds = time.perf_counter() - start
            cpu = broker.cpu_seconds() + _cpu_of_tree(jvm) - cpu
            if number >= WARM_UP:
                taken[name].append(Cost(seconds, cpu))
    return {
        name: Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))
        for name, costs in taken.items()
    }


def _cpu_of_tree(root: int) -> float:
    """Returns the processor seconds of a process and its descendants, including ended ones."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            stat = entry.read_text().rpartition(")")[2].split()
            pid = int(entry.parent.name)
            ticks[pid] = sum(map(int, stat[11:15]))
            children.setdefault(int(stat[1]), []).append(pid)
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    return sum(ticks.get(pid, 0) for pid in tree) / os.sysconf("SC_CLK_TCK")


def _compare(what: str, count: int, costs: dict[str, Cost], *, is_target: bool = True) -> list[Row]:
    ours, theirs = (costs[name] for name in FORMATS)
    name = f"{what}: penstock against kafka"
    ratio = theirs.seconds / ours.seconds
    return [
        *(Row(f"{what}: {name}", count / cost.seconds, "rows/s") for name, cost in costs.items()),
        at_least(name, ratio, "times", 1) if is_target else Row(name, ratio, "times"),
        Row("  in processor time", theirs.cpu / ours.cpu, "times"),
    ]

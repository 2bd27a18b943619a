"""Pipelines with dead letters in a topic or in tables, and replays that end at any step.

As a program it replays once, and exits without cleanup at the step of its argument.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from penstock.client import Producer
from penstock.spark.decode.dead_letters import SCHEMA, to_records
from penstock.spark.decode.replay import ReplayResult, replay
from penstock.spark.pipeline.model import (
    DeadLetterSpec,
    PipelineSpec,
    SourceSpec,
)
from penstock.spark.sinks.database.dead_letters import DeadLetterTable
from penstock.spark.sinks.database.engines import open_engine
from penstock.spark.sinks.database.kind import DatabaseSinkSpec
from penstock.spark.sinks.topic.kind import TopicSinkSpec

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TABLE = "dead"
KILLED = 9


def topic_pipeline(servers: str, name: str, dead_letters: str) -> PipelineSpec:
    return PipelineSpec(
        name=name,
        bootstrap_servers=servers,
        sources=(SourceSpec(name="clicks", topics=("clicks",), schema="id bigint"),),
        sinks=(TopicSinkSpec(name="out", view="clicks", topic="out"),),
        dead_letters=DeadLetterSpec(topic=dead_letters),
    )


def table_pipeline(servers: str, name: str, databases: Sequence[str]) -> PipelineSpec:
    """Returns a pipeline with a sink for each database; databases may repeat."""
    return PipelineSpec(
        name=name,
        bootstrap_servers=servers,
        sources=(SourceSpec(name="clicks", topics=("clicks",), schema="id bigint"),),
        sinks=tuple(
            DatabaseSinkSpec(name=f"out{number}", view="clicks", database=database, table="clicks")
            for number, database in enumerate(databases)
        ),
        dead_letters=DeadLetterSpec(table=TABLE),
    )


def dead_letters(
    topic: str, offsets: Sequence[int], *, partition: int = 0, topic_id: str = "id-1"
) -> pa.Table:
    rows = [
        {
            "source": "clicks",
            "topic": topic,
            "topic_id": topic_id,
            "partition": partition,
            "offset": offset,
            "timestamp": TIME,
            "key": b"key",
            "value": f"{topic}-{partition}@{offset}".encode(),
            "headers": [{"key": "trace", "value": b"7"}],
            "reason": "odd" if offset % 2 else "even",
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def put_in_topic(servers: str, topic: str, letters: pa.Table, pipeline: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for key, value, headers in to_records(letters, pipeline):
            producer.send(topic, value, key=key, headers=headers)


def put_in_table(spec: PipelineSpec, sink: int, letters: pa.Table) -> None:
    chosen = spec.sinks[sink]
    assert isinstance(chosen, DatabaseSinkSpec)
    engine = open_engine(chosen.database, 10)
    table = DeadLetterTable(engine, TABLE, spec.query(chosen))
    table.create()
    with engine.begin() as connection:
        table.write(connection, letters)
    engine.dispose()


def replay_and_die(spec: PipelineSpec, step: str, time: int) -> int:
    """Replays in a process of its own, which ends when it reaches a step for the n-th time."""
    sinks = [sink.database for sink in spec.sinks if isinstance(sink, DatabaseSinkSpec)]
    order = {
        "servers": spec.bootstrap_servers,
        "name": spec.name,
        "topic": spec.dead_letters.topic if spec.dead_letters else None,
        "databases": sinks,
        "step": step,
        "time": time,
    }
    directory = Path(__file__).resolve().parents[3]
    return subprocess.run(
        [sys.executable, "-m", "tests.support.spark.dead_letter_replay", json.dumps(order)],
        check=False,
        cwd=directory,
        timeout=60,
    ).returncode


def _main(order: dict[str, object]) -> ReplayResult:
    servers, name = str(order["servers"]), str(order["name"])
    databases = order["databases"]
    assert isinstance(databases, list)
    if order["topic"] is not None:
        spec = topic_pipeline(servers, name, str(order["topic"]))
    else:
        spec = table_pipeline(servers, name, databases)
    steps: list[str] = []

    def step(done: str) -> None:
        steps.append(done)
        if done == order["step"] and steps.count(done) == order["time"]:
            os._exit(KILLED)

    return replay(spec, on_step=step)


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))

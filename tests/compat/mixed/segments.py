"""The files of all replicas, when the brokers have stopped."""

from collections import defaultdict
from pathlib import Path

from penstock.client import Producer
from penstock.records.batch import read_header
from tests.compat.mixed.view import KAFKA, MixedView
from tests.support.history.cluster import BROKER_IDS
from tests.support.history.replica_logs import differences, read_batches

REPLICAS = ((1, 2, 3), (2, 3, 1))
"""Partition 0 is led by Kafka, partition 1 by Penstock."""
CONFIGS = {"segment.bytes": "16384", "index.interval.bytes": "1024"}
"""Kafka 4 and Penstock let nobody set such a small size, but obey that of an older topic."""
TRANSACTIONS = 30
VALUE_BYTES = 3000
EPOCHS = "leader-epoch-checkpoint"


def fill(view: MixedView, name: str) -> None:
    """Writes transactions, each batch after all replicas have the one before.

    A follower appends what it has fetched at once, and rolls a segment between such appends. So
    segments have the same boundaries on all replicas only if each fetch returns one batch.
    """
    view.move_controller_to({KAFKA})
    view.create_topic(name, *REPLICAS, configs=CONFIGS)
    bootstrap = view.cluster.network.bootstrap
    with Producer(bootstrap_servers=bootstrap, acks="all", transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for partition in range(len(REPLICAS)):
                producer.send(name, b"%0*d" % (VALUE_BYTES, number), partition=partition).result(30)
            if number % 3:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


def check_files(view: MixedView, name: str) -> None:
    """All replicas have the same files: logs, indexes, snapshots of producers, topic id.

    The leader epochs are the same but for those without records, which only their leaders know.
    """
    for number in range(len(REPLICAS)):
        files: dict[str, dict[int, object]] = defaultdict(dict)
        for broker_id in BROKER_IDS:
            for path in view.replica_directory(broker_id, name, number).iterdir():
                content = epochs_in(path) if path.name == EPOCHS else path.read_bytes()
                files[path.name][broker_id] = content
        assert len([file for file in files if file.endswith(".log")]) > 2, sorted(files)
        assert any(file.endswith(".txnindex") for file in files), sorted(files)
        different = {
            file: {broker_id: len(str(content)) for broker_id, content in contents.items()}
            for file, contents in files.items()
            if len(contents) < len(BROKER_IDS) or len(set(contents.values())) > 1
        }
        assert not different, f"{name}-{number}: {different}"


def epochs_in(path: Path) -> tuple[str, ...]:
    """Returns the entries of epochs that have records."""
    batches = read_batches(path.parent).values()
    used = {str(read_header(batch).partition_leader_epoch) for batch in batches}
    entries = path.read_text().splitlines()[2:]
    return tuple(entry for entry in entries if entry.split()[0] in used)


def check_logs(view: MixedView) -> None:
    """All replicas of all partitions have the same batches."""
    directories = {number: view.cluster.data_directory(number) for number in BROKER_IDS}
    names = {number: partitions_in(path) for number, path in directories.items()}
    for partition in set().union(*names.values()):
        replicas = {i: path for i, path in directories.items() if partition in names[i]}
        assert not differences(replicas, [partition])


def partitions_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if (path / "partition.metadata").exists()}

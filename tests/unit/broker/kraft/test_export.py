"""Log directories are copied for Kafka, or refused with what to do about it (S1)."""

from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.config.properties import load_broker_config
from penstock.broker.kraft.export import KafkaExport
from penstock.broker.offline.log_dirs import locked_nodes
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    ClusterIdRecord,
    PartitionRecord,
    Put,
    TopicRecord,
)
from penstock.core.errors import KafkaStorageError
from penstock.storage.checkpoint.checkpoint_files import (
    MetaProperties,
    load_meta_properties,
    store_clean_shutdown,
    store_meta_properties,
)
from penstock.storage.disk import OsDisk
from penstock.storage.manager.dir_identity import lock_log_dir

DISK = OsDisk()
DIRECTORY = UUID(int=88)
OLD, ACTIVE = f"{0:020d}.log", f"{9:020d}.log"


def log_dir(path: Path, node_id: int, *partitions: str) -> Path:
    """Makes the log directory of a broker that was stopped cleanly."""
    path.mkdir(parents=True)
    store_meta_properties(DISK, str(path), MetaProperties(1, "cluster", node_id, DIRECTORY))
    for name in partitions:
        (path / name).mkdir()
        for file in (OLD, ACTIVE, f"{0:020d}.index", f"{0:020d}.log.deleted", ".penstock_moved"):
            (path / name / file).write_text(file)
    store_clean_shutdown(DISK, str(path))
    return path


def image_of(*replicas: int) -> ClusterImage:
    image = ClusterImage()
    topic = TopicRecord("t", UUID(int=77), {0: Assignment(replicas)})
    state = PartitionRecord("t", 0, replicas[0], 0, replicas, 0, 0)
    image.apply([Put(ClusterIdRecord("cluster")), Put(topic), Put(state)])
    return image


def export(
    image: ClusterImage, source: str, *outputs: Path, node_id: int = 1, link: bool = False
) -> KafkaExport:
    config = load_broker_config(None, [f"log.dirs={source}", f"node.id={node_id}"])
    with locked_nodes(config) as nodes:
        plan = KafkaExport(image, nodes, outputs, now_ms=0)
        plan.run(link=link, copied=lambda _size: None)
    return plan


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_log_directory_is_copied(tmp_path: Path) -> None:
    source = log_dir(tmp_path / "data", 1, "t-0", "gone-0")
    (source / "t-1.9.00-stray").mkdir()
    output = tmp_path / "kafka"
    plan = export(image_of(1), str(source), output)
    assert names(output) == [
        ".kafka_cleanshutdown",
        "__cluster_metadata-0",
        "bootstrap.checkpoint",
        "meta.properties",
        "t-0",
    ]
    assert names(output / "t-0") == [OLD.replace("log", "index"), OLD, ACTIVE, "partition.metadata"]
    assert load_meta_properties(DISK, str(output)) == MetaProperties(1, "cluster", 1, DIRECTORY)
    assert not (source / "t-0" / OLD).samefile(output / "t-0" / OLD)
    assert plan.omissions == [
        f"{source}/t-1.9.00-stray: not the log of a partition",
        f"{source}/gone-0: there is no such topic",
    ]


def test_only_segments_that_never_change_are_linked(tmp_path: Path) -> None:
    source = log_dir(tmp_path / "data", 1, "t-0")
    output = tmp_path / "kafka"
    export(image_of(1), str(source), output, link=True)
    assert (source / "t-0" / OLD).samefile(output / "t-0" / OLD)
    for name in (ACTIVE, OLD.replace("log", "index")):
        assert not (source / "t-0" / name).samefile(output / "t-0" / name)


def test_all_brokers_of_a_supervisor_are_copied(tmp_path: Path) -> None:
    source = log_dir(tmp_path / "data", 1, "t-0")
    log_dir(source / "broker.2", 2, "t-0")
    plan = export(image_of(2, 1), str(source), tmp_path / "kafka")
    first, second = tmp_path / "kafka" / "node-1", tmp_path / "kafka" / "node-2"
    assert plan.log_dirs == {1: [first], 2: [second]}
    assert plan.voters == [1, 2]
    [snapshot] = (first / "__cluster_metadata-0").iterdir()
    [other] = (second / "__cluster_metadata-0").iterdir()
    assert snapshot.read_bytes() == other.read_bytes()


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    source = log_dir(tmp_path / "data", 1)
    plan = export(image_of(1), str(source), tmp_path / "kafka")
    assert plan.omissions == ["t-0 of node 1: it has no log, and Kafka creates an empty one"]


def test_a_broker_that_runs_is_left_alone(tmp_path: Path) -> None:
    source = log_dir(tmp_path / "data", 1, "t-0")
    lock = lock_log_dir(DISK, str(source))
    with pytest.raises(KafkaStorageError, match="in use by another process"):
        export(image_of(1), str(source), tmp_path / "kafka")
    lock.release()
    export(image_of(1), str(source), tmp_path / "kafka")


def test_what_cannot_be_right_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = log_dir(tmp_path / "data", 1, "t-0")
    output = tmp_path / "kafka"
    with pytest.raises(KafkaStorageError, match="one output for each directory"):
        export(image_of(1), str(source), output, tmp_path / "more")
    with pytest.raises(KafkaStorageError, match="named twice"):
        export(image_of(1), str(source), output, output)
    with pytest.raises(KafkaStorageError, match="is in the log directory"):
        export(image_of(1), str(source), source / "kafka")
    with pytest.raises(KafkaStorageError, match=r"set node.id=1"):
        export(image_of(1), str(source), output, node_id=2)
    image = image_of(1)
    image.cluster_id = "other"
    with pytest.raises(KafkaStorageError, match="belongs to cluster"):
        export(image, str(source), output)
    other = log_dir(tmp_path / "second", 1, "t-0")
    with pytest.raises(KafkaStorageError, match="start and stop the broker once"):
        export(image_of(1), f"{source},{other}", output, tmp_path / "more")
    with pytest.raises(KafkaStorageError, match="does not exist"):
        export(image_of(1), str(tmp_path / "missing"), output)
    (source / ".kafka_cleanshutdown").unlink()
    with pytest.raises(KafkaStorageError, match="not closed cleanly"):
        export(image_of(1), str(source), output)
    assert not output.exists()
    output.mkdir()
    (output / "file").touch()
    store_clean_shutdown(DISK, str(source))
    with pytest.raises(KafkaStorageError, match="not empty"):
        export(image_of(1), str(source), output)


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source = log_dir(tmp_path / "data", 1, "t-0")
    (tmp_path / "file").touch()
    with pytest.raises(KafkaStorageError, match="file/kafka cannot be copied: Not a directory"):
        export(image_of(1), str(source), tmp_path / "file" / "kafka")

"""The text files of a log directory, as Kafka 4.3.1 writes and reads them (S1)."""

import re
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ErrorCode, KafkaStorageError
from penstock.core.ids import TopicPartition
from penstock.storage.checkpoint import checkpoint_files
from penstock.storage.checkpoint.checkpoint_files import (
    CorruptCheckpointError,
    EpochEntry,
    MetaProperties,
    PartitionMetadata,
)
from penstock.storage.disk import replace_by_temporary, replace_file
from tests.support.storage.crash_disk import CrashDisk, CrashMode

OFFSETS = {
    TopicPartition("orders", 0): 1500,
    TopicPartition("orders.eu-west_1", 11): 9223372036854775807,
    TopicPartition("__consumer_offsets", 49): 0,
}
KAFKA_OFFSETS = (
    b"0\n3\norders 0 1500\norders.eu-west_1 11 9223372036854775807\n__consumer_offsets 49 0\n"
)
"""Written by OffsetCheckpointFile."""

EPOCHS = [EpochEntry(0, 0), EpochEntry(3, 150), EpochEntry(2147483647, 9223372036854775807)]
KAFKA_EPOCHS = b"0\n3\n0 0\n3 150\n2147483647 9223372036854775807\n"
"""Written by LeaderEpochCheckpointFile."""

TOPIC_ID = UUID("8f48585a-34c3-42fb-aa16-fa86ab12a727")
KAFKA_PARTITION_METADATA = b"version: 0\ntopic_id: j0hYWjTDQvuqFvqGqxKnJw"
"""Written by PartitionMetadataFile."""

META = MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qk", 7, TOPIC_ID)
KAFKA_META = (
    b"#\n#Sun Nov 15 07:52:10 UTC 2026\nnode.id=7\ndirectory.id=j0hYWjTDQvuqFvqGqxKnJw\n"
    b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n"
)
"""Written by MetaProperties and PropertiesUtils. The order is that of a Java hash table."""

OLD_META = MetaProperties(0, "a b:c=d#\\x", 0)
KAFKA_OLD_META = (
    b"#\n#Sun Nov 15 07:52:10 UTC 2026\nbroker.id=0\nversion=0\ncluster.id=a b\\:c\\=d\\#\\\\x\n"
)


# --- offset checkpoints


def test_offsets_are_written_and_read_as_kafka_does() -> None:
    assert checkpoint_files.encode_offsets(OFFSETS) == KAFKA_OFFSETS
    assert checkpoint_files.decode_offsets(KAFKA_OFFSETS, "f") == OFFSETS
    assert checkpoint_files.encode_offsets({}) == b"0\n0\n"


def test_leader_epochs_are_written_and_read_as_kafka_does() -> None:
    assert checkpoint_files.encode_leader_epochs(EPOCHS) == KAFKA_EPOCHS
    assert checkpoint_files.decode_leader_epochs(KAFKA_EPOCHS, "f") == EPOCHS


@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n"])
def test_a_file_without_entries_is_empty(content: bytes) -> None:
    """Kafka creates checkpoints as empty files."""
    assert checkpoint_files.decode_offsets(content, "f") == {}
    assert checkpoint_files.decode_leader_epochs(content, "f") == []


def test_line_ends_and_blanks_of_editors_are_accepted() -> None:
    for content in (b"0\r\n1\r\na 0 5\r\n", b"0\n1\na\t0  5", b"0\r1\ra 0 5 "):
        assert checkpoint_files.decode_offsets(content, "f") == {TopicPartition("a", 0): 5}


def check_malformed(
    decode: Callable[[bytes, str], object], content: bytes, line: int, message: str
) -> None:
    """Checks that decoding fails with the file, the line, the reason and the remedy."""
    with pytest.raises(CorruptCheckpointError, match=re.escape(message)) as caught:
        decode(content, "/data/the-file")
    assert f"/data/the-file, line {line}: " in caught.value.message
    assert "delete it" in caught.value.message
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"x\n", 1, "'x' should be the version"),
        (b"\n", 1, "'' should be the version"),
        (b"1\n0\n", 1, "version 1 is not supported, only 0"),
        (b"0\nmany\n", 2, "'many' should be the number of entries"),
        (b"0\n2\na 0 5\n", 2, "there should be 2 entries, not 1"),
        (b"0\n0\na 0 5\n", 2, "there should be 0 entries, not 1"),
        (b"0\n1\na 0\n", 3, "'a 0' is not of the form 'topic partition offset'"),
        (b"0\n2\na 0 5\na 1 2 3\n", 4, "'a 1 2 3' is not of the form"),
        (b"0\n1\na 0 5_0\n", 3, "not of the form"),
        (b"0\n1\na x 5\n", 3, "not of the form"),
        (b"0\n1\na 2147483648 5\n", 3, "not of the form"),
        (b"0\n1\na 0 9223372036854775808\n", 3, "not of the form"),
        (b"0\n1\na 0 \xd9\xa3\n", 3, "not of the form"),
        (b"0\n1\n\na 0 5\n", 3, "'' is not of the form"),
        (b"0\n1\n\xff 0 5\n", 3, "not UTF-8"),
    ],
)
def test_the_error_of_a_malformed_checkpoint_has_file_and_line(
    content: bytes, line: int, message: str
) -> None:
    check_malformed(checkpoint_files.decode_offsets, content, line, message)


@pytest.mark.parametrize("content", [b"0\n1\n-1 5\n", b"0\n1\n1 -5\n", b"0\n1\n1\n"])
def test_a_malformed_epoch_is_an_error(content: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"line 3: .* 'epoch start-offset'"):
        checkpoint_files.decode_leader_epochs(content, "f")


def test_offsets_are_stored_so_that_a_crash_leaves_them() -> None:
    """S7."""
    disk = CrashDisk()
    path = "/" + checkpoint_files.RECOVERY_POINT_CHECKPOINT
    assert checkpoint_files.load_offsets(disk, path) == {}
    replace_file(disk, path, checkpoint_files.encode_offsets(OFFSETS))
    assert checkpoint_files.load_offsets(disk.image(CrashMode.DURABLE), path) == OFFSETS


@given(
    st.dictionaries(
        st.builds(
            TopicPartition,
            st.from_regex(r"\A[A-Za-z0-9._-]{1,30}\Z"),
            st.integers(0, 2**31 - 1),
        ),
        st.integers(-(2**63), 2**63 - 1),
        max_size=8,
    )
)
def test_offsets_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert checkpoint_files.decode_offsets(checkpoint_files.encode_offsets(offsets), "f") == offsets


DECODERS: list[Callable[[bytes, str], object]] = [
    checkpoint_files.decode_offsets,
    checkpoint_files.decode_leader_epochs,
    checkpoint_files.decode_partition_metadata,
    checkpoint_files.decode_meta_properties,
]


@given(
    st.sampled_from(DECODERS),
    st.binary(max_size=60)
    | st.lists(
        st.sampled_from([b"0", b"1", b"\n", b" ", b"a", b":", b"=", b"\\", b"u", b"version"]),
        max_size=20,
    ).map(b"".join),
)
def test_bad_bytes_give_one_error_and_no_other(
    decode: Callable[[bytes, str], object], content: bytes
) -> None:
    notifications = ""
    try:
        decode(content, "/f")
    except KafkaStorageError as error:
        notifications = error.message
    assert not notifications or re.match(r"/f, line \d+: ", notifications)


# --- the clean-shutdown marker


def test_the_clean_shutdown_marker() -> None:
    """Written by CleanShutdownFileHandler for broker epochs -1 and 42."""
    assert checkpoint_files.encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
    assert checkpoint_files.encode_clean_shutdown(42) == b'{"version":0,"brokerEpoch":42}'
    assert checkpoint_files.decode_clean_shutdown(b'{"version":0,"brokerEpoch":42}') == 42
    assert checkpoint_files.decode_clean_shutdown(b'{"new":1, "brokerEpoch": 7, "version": 3}') == 7


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b"{}", b'{"brokerEpoch":"x"}', b'{"brokerEpoch":true}']
)
def test_a_marker_without_epoch_still_is_one(content: bytes) -> None:
    """Before 3.7 it was an empty file."""
    disk = CrashDisk()
    disk.make_directory("/data")
    disk.open("/data/.kafka_cleanshutdown", create=True).write_at(content, 0)
    assert checkpoint_files.has_clean_shutdown(disk, "/data")
    assert checkpoint_files.decode_clean_shutdown(content) is None


def test_the_marker_is_durable_and_so_is_its_removal() -> None:
    """S7: a marker that reappears after a crash would hide the crash."""
    disk = CrashDisk()
    disk.make_directory("/data")
    disk.make_durable()
    assert not checkpoint_files.has_clean_shutdown(disk, "/data")
    checkpoint_files.store_clean_shutdown(disk, "/data", 5)
    image = disk.image(CrashMode.DURABLE)
    marker = image.read_file(f"/data/{checkpoint_files.CLEAN_SHUTDOWN_MARKER}")
    assert checkpoint_files.decode_clean_shutdown(marker) == 5
    checkpoint_files.remove_clean_shutdown(image, "/data")
    assert not checkpoint_files.has_clean_shutdown(image.image(CrashMode.DURABLE), "/data")
    checkpoint_files.remove_clean_shutdown(image, "/data")


# --- identities


def test_uuids_are_printed_as_kafka_prints_them() -> None:
    assert checkpoint_files.uuid_text(TOPIC_ID) == "j0hYWjTDQvuqFvqGqxKnJw"
    assert checkpoint_files.parse_uuid("j0hYWjTDQvuqFvqGqxKnJw") == TOPIC_ID
    assert checkpoint_files.parse_uuid("j0hYWjTDQvuqFvqGqxKnJw==") == TOPIC_ID


@given(st.uuids())
def test_uuids_round_trip(value: UUID) -> None:
    assert checkpoint_files.parse_uuid(checkpoint_files.uuid_text(value)) == value


@pytest.mark.parametrize("text", ["", "x", "j0hYWjTDQvuqFvqGqxKn+w", "8f48585a-34c3-42fb-aa16-f"])
def test_other_texts_are_not_uuids(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID in base64"):
        checkpoint_files.parse_uuid(text)


def test_partition_metadata_is_written_and_read_as_kafka_does() -> None:
    metadata = PartitionMetadata(0, TOPIC_ID)
    assert checkpoint_files.encode_partition_metadata(metadata) == KAFKA_PARTITION_METADATA
    assert checkpoint_files.decode_partition_metadata(KAFKA_PARTITION_METADATA, "f") == metadata
    later = KAFKA_PARTITION_METADATA.replace(b"0", b"9", 1) + b"\nmore: 1\n"
    assert checkpoint_files.decode_partition_metadata(later, "f") == (9, TOPIC_ID)
    disk = CrashDisk()
    assert checkpoint_files.load_partition_metadata(disk, "/") is None
    checkpoint_files.write_partition_metadata(disk, "/", TOPIC_ID)
    assert checkpoint_files.load_partition_metadata(disk, "/") is None
    replace_by_temporary(disk, f"//{checkpoint_files.PARTITION_METADATA}")
    assert checkpoint_files.load_partition_metadata(disk, "/") == metadata


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 1, "'' is not of the form 'version: …'"),
        (b"version 0", 1, "is not of the form"),
        (b"version: x\n", 2, "'' is not of the form"),
        (b"version: x\ntopic_id: j0hYWjTDQvuqFvqGqxKnJw", 1, "'x' is not a version"),
        (b"version: -1\ntopic_id: j0hYWjTDQvuqFvqGqxKnJw", 1, "version -1 is not supported"),
        (b"version: 0\nid: x", 2, "'id: x' is not of the form 'topic_id: …'"),
        (b"version: 0\ntopic_id: x", 2, "'x' is not a UUID in base64"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2, "the topic id is zero"),
    ],
)
def test_malformed_partition_metadata_is_an_error(content: bytes, line: int, message: str) -> None:
    check_malformed(checkpoint_files.decode_partition_metadata, content, line, message)


@pytest.mark.parametrize(("content", "meta"), [(KAFKA_META, META), (KAFKA_OLD_META, OLD_META)])
def test_meta_properties_of_kafka_are_read(content: bytes, meta: MetaProperties) -> None:
    assert checkpoint_files.decode_meta_properties(content, "f") == meta
    ours = checkpoint_files.encode_meta_properties(meta)
    assert sorted(ours.splitlines()[1:]) == sorted(content.splitlines()[2:])


def test_meta_properties_may_be_incomplete() -> None:
    assert checkpoint_files.decode_meta_properties(b"", "f") == MetaProperties(0)
    assert checkpoint_files.encode_meta_properties(MetaProperties(0)) == b"#\nversion=0\n"
    disk = CrashDisk()
    assert checkpoint_files.load_meta_properties(disk, "/") is None
    checkpoint_files.store_meta_properties(disk, "/", META)
    assert checkpoint_files.load_meta_properties(disk, "/") == META


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"#\nversion=2\n", 2, "version is '2', not 0 or 1"),
        (b"version=1\nnode.id=1\n", 3, "cluster.id is missing"),
        (b"version=1\ncluster.id=x\n", 3, "node.id is missing"),
        (b"version=1\ncluster.id=x\nnode.id=one\n", 3, "node.id is 'one', not a number"),
        (b"version=0\n\nbroker.id=1x\n", 3, "broker.id is '1x', not a number"),
        (b"version=0\ndirectory.id=1\n", 2, "directory.id is '1', not a UUID in base64"),
        (b"version=0\nx=\\u00g0\n", 2, "four hexadecimal digits"),
    ],
)
def test_malformed_meta_properties_are_an_error(content: bytes, line: int, message: str) -> None:
    check_malformed(checkpoint_files.decode_meta_properties, content, line, message)


@given(
    st.builds(
        MetaProperties,
        st.sampled_from([0, 1]),
        st.text(),
        st.integers(0, 2**31 - 1),
        st.none() | st.uuids(),
    )
)
def test_meta_properties_round_trip(meta: MetaProperties) -> None:
    content = checkpoint_files.encode_meta_properties(meta)
    assert checkpoint_files.decode_meta_properties(content, "f") == meta

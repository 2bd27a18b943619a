"""The encoding of `__consumer_offsets` (C3)."""

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.group.classic.records import ClassicGroupRecord, group_tombstone
from penstock.coordinator.group.offsets.records import OffsetRecord, offset_tombstone
from penstock.coordinator.group.record import Record
from penstock.coordinator.group.records import decode_record, encode_record
from penstock.coordinator.machine import Skipped
from penstock.protocol.stored.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from penstock.protocol.stored.offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.stored.share_group import ShareGroupMetadataKey
from penstock.protocol.versioned import encode_record_key, encode_versioned

OFFSET_KEY = OffsetCommitKey("g", "t", 3)
names = st.text(min_size=1, max_size=20)
int64 = st.integers(0, 2**63 - 1)


def test_an_offset_key_is_encoded_as_in_kafka() -> None:
    """Type 1, group, topic, partition."""
    key, value = encode_record(offset_tombstone("g", "t", 3))
    assert key == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + struct.pack(">i", 3)
    assert value is None


def test_a_group_key_is_encoded_as_in_kafka() -> None:
    assert encode_record(group_tombstone("g")) == (b"\x00\x02\x00\x01g", None)


@pytest.mark.parametrize(("expires", "version"), [(-1, 4), (77, 1)])
def test_the_version_of_an_offset_depends_on_its_expiry(expires: int, version: int) -> None:
    record = OffsetRecord(OFFSET_KEY, OffsetCommitValue(offset=1, expire_timestamp=expires))
    value = encode_record(record)[1]
    assert value is not None
    assert struct.unpack_from(">h", value) == (version,)


def test_a_group_is_written_in_version_3() -> None:
    value = encode_record(ClassicGroupRecord(GroupMetadataKey("g"), GroupMetadataValue()))[1]
    assert value is not None
    assert value[:2] == b"\x00\x03"


@given(
    record=st.one_of(
        st.builds(
            OffsetRecord,
            st.builds(OffsetCommitKey, names, names, st.integers(0, 2**31 - 1)),
            st.none()
            | st.builds(
                OffsetCommitValue,
                offset=int64,
                leader_epoch=st.integers(-1, 9),
                metadata=st.text(max_size=30),
                commit_timestamp=int64,
                topic_id=st.builds(UUID, int=st.integers(0, 2**128 - 1)),
            ),
        ),
        st.builds(
            ClassicGroupRecord,
            st.builds(GroupMetadataKey, names),
            st.none()
            | st.builds(
                GroupMetadataValue,
                protocol_type=names,
                generation=st.integers(0, 2**31 - 1),
                protocol=st.none() | names,
                leader=st.none() | names,
                current_state_timestamp=int64,
                members=st.lists(
                    st.builds(
                        MemberMetadata,
                        names,
                        st.none() | names,
                        names,
                        names,
                        st.integers(0, 9),
                        st.integers(0, 9),
                        st.binary(),
                        st.binary(),
                    ),
                    max_size=3,
                ),
            ),
        ),
    )
)
def test_records_round_trip(record: Record) -> None:
    assert decode_record(*encode_record(record)) == record


def test_offsets_of_the_oldest_version_are_read() -> None:
    key = encode_record_key(LegacyOffsetCommitKey("g", "t", 3))
    value = encode_versioned(LegacyOffsetCommitValue(7, "note", 99), 0)
    expected = OffsetCommitValue(offset=7, metadata="note", commit_timestamp=99)
    assert decode_record(key, value) == OffsetRecord(OFFSET_KEY, expected)
    assert decode_record(key, None) == OffsetRecord(OFFSET_KEY, None)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_offsets_of_all_versions_are_read(version: int) -> None:
    value = encode_versioned(OffsetCommitValue(offset=7, commit_timestamp=5), version)
    record = decode_record(encode_record_key(OFFSET_KEY), value)
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert record.value.offset == 7


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        (None, b"", "has no key"),
        (b"", b"", "cannot be read"),
        (b"\x00\x63rest", b"", "type 99"),
        (encode_record_key(ShareGroupMetadataKey("g")), None, "type 11"),
        (encode_record_key(OFFSET_KEY), b"\x00\x09", "cannot be read"),
        (encode_record_key(OFFSET_KEY), b"\x00\x03\x00", "cannot be read"),
        (encode_record_key(OFFSET_KEY)[:-1], None, "cannot be read"),
    ],
)
def test_unknown_records_are_skipped(key: bytes | None, value: bytes | None, note: str) -> None:
    record = decode_record(key, value)
    assert isinstance(record, Skipped)
    assert note in record.note

"""An `OffsetReader` restores the same offsets as the record codecs."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.group.offsets.reader import OffsetReader
from penstock.coordinator.group.offsets.records import OffsetRecord
from penstock.coordinator.group.records import decode_record
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.stored.offsets import OffsetCommitKey, OffsetCommitValue
from penstock.protocol.versioned import encode_record_key, encode_versioned

longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
keys = st.builds(
    OffsetCommitKey, st.sampled_from(["", "g", "group é"]), st.sampled_from(["", "t", "uu"]), ints
)
values = st.builds(
    OffsetCommitValue,
    offset=longs,
    leader_epoch=ints,
    metadata=st.sampled_from(["", "", "m", "x" * 200]),
    commit_timestamp=longs,
    expire_timestamp=st.just(-1),
    topic_id=st.sampled_from([ZERO_UUID, UUID(int=1), UUID(int=2**128 - 1)]),
)


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes, bytes | None]:
    """Encoded keys and values, a few of them damaged."""
    key = encode_record_key(draw(keys))
    value = encode_versioned(draw(values), draw(st.sampled_from([3, 4, 4, 4])))
    spoilt = draw(st.integers(0, 9))
    if spoilt == 0:
        key = key[: draw(st.integers(0, len(key)))]
    elif spoilt == 1:
        value = value[: draw(st.integers(0, len(value)))]
    elif spoilt == 2:
        at = draw(st.integers(0, len(key) - 1))
        key = key[:at] + draw(st.binary(min_size=1, max_size=1)) + key[at + 1 :]
    elif spoilt == 3:
        at = draw(st.integers(0, len(value) - 1))
        value = value[:at] + draw(st.binary(min_size=1, max_size=1)) + value[at + 1 :]
    return key, None if spoilt == 4 else value


@given(st.lists(records(), max_size=30))
def test_the_reader_restores_the_same_offsets_as_the_codecs(
    log: list[tuple[bytes, bytes | None]],
) -> None:
    reader = OffsetReader()
    for key, value in log:
        assert decode_record(key, value, reader) == decode_record(key, value)


def test_most_offsets_take_the_fast_path() -> None:
    key, value = OffsetCommitKey("g", "t", 3), OffsetCommitValue(5, 1, "", 7, -1, UUID(int=9))
    reader = OffsetReader()
    assert reader.key(encode_record_key(key)) == key
    assert reader.value(encode_versioned(value, 4)) == value
    assert OffsetRecord(key, value) == decode_record(
        encode_record_key(key), encode_versioned(value, 4), reader
    )

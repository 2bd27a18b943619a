"""An append prepared on another thread has the same result as one in a single call."""

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from penstock.core.errors import KafkaError
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.batch import (
    TimestampType,
    compute_crc,
    read_header,
    write_crc,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression, decompress
from penstock.records.prepare import PreparedAppend
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.records.validate import Assigned
from tests.support.storage.batches import T, golden, record_lists
from tests.support.storage.validation import max_timestamp_of, validate_and_assign

LEGACY = golden("legacy")

policies = st.builds(
    AppendPolicy,
    compression=st.none() | st.sampled_from(Compression),
    timestamp_type=st.sampled_from(TimestampType),
    timestamp_before_max_ms=st.sampled_from([2**63 - 1, 2**63 - 1, 500]),
    timestamp_after_max_ms=st.sampled_from([2**63 - 1, 2**63 - 1, 500]),
    compacted=st.booleans(),
    max_message_bytes=st.sampled_from([1_048_588, 1_048_588, 150]),
)


@st.composite
def sent(draw: st.DrawFn) -> tuple[bytearray, AppendOrigin]:
    """Batches of a client or a coordinator, some of them with a changed byte."""
    origin = draw(st.sampled_from([AppendOrigin.CLIENT] * 3 + [AppendOrigin.COORDINATOR]))
    if draw(st.integers(0, 4)) == 0:
        data = bytearray(LEGACY[draw(st.sampled_from(sorted(LEGACY)))])
    else:
        count = 1 if origin is AppendOrigin.CLIENT else draw(st.integers(1, 3))
        data = bytearray().join(draw(batches()) for _ in range(count))
    if draw(st.integers(0, 3)) == 0:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        if draw(st.booleans()) and len(data) > 61:
            write_crc(data, 0, compute_crc(data, 0, len(data)))
    return data, origin


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    step = draw(st.sampled_from([1, 1, 1, 2]))
    records = [
        record._replace(offset=index * step)
        for index, record in enumerate(draw(record_lists(min_size=1, max_size=5)))
    ]
    producer = draw(st.sampled_from([(-1, -1, -1, False), (5, 1, 7, False), (5, 1, 7, True)]))
    return build_batch(
        records,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=producer[3],
        compression=draw(st.sampled_from(Compression)),
    )


def described(assigned: Assigned) -> tuple[object, ...]:
    return bytes(assigned.buffer), assigned.headers, max_timestamp_of(assigned)


@settings(max_examples=300)
@given(sent(), policies)
def test_both_paths_have_the_same_bytes_and_errors(
    what: tuple[bytearray, AppendOrigin], policy: AppendPolicy
) -> None:
    data, origin = what
    at_once: tuple[object, ...] | str
    ahead: tuple[object, ...] | str
    try:
        at_once = described(
            validate_and_assign(
                bytearray(data),
                next_offset=100,
                leader_epoch=5,
                now_ms=T,
                policy=policy,
                origin=origin,
            )
        )
    except KafkaError as error:
        at_once = f"{error.code} {error}"
    before = bytes(data)
    prepared = PreparedAppend(data, policy, origin, T)
    prepared.run()
    assert data == before, "what the client sent stays as it is"
    try:
        ahead = described(prepared.assign(100, 5, T))
    except KafkaError as error:
        ahead = f"{error.code} {error}"
    assert ahead == at_once


@settings(max_examples=200)
@given(batches(), st.sampled_from(Compression), st.sampled_from(TimestampType))
def test_log_append_time_is_that_of_the_append(
    data: bytearray, codec: Compression, timestamp_type: TimestampType
) -> None:
    """Not that of the preparation; the CRC is updated."""
    policy = AppendPolicy(
        compression=codec,
        timestamp_type=timestamp_type,
        timestamp_after_max_ms=2**63 - 1,
    )
    prepared = PreparedAppend(data, policy, AppendOrigin.CLIENT, T)
    prepared.run()
    try:
        placed = prepared.assign(7, 3, T + 1234)
    except KafkaError:
        reject()
    header = read_header(placed.buffer)
    assert placed.headers == [header]
    assert compute_crc(placed.buffer, 0, header.size) == header.crc
    assert (header.base_offset, header.partition_leader_epoch) == (7, 3)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        assert header.max_timestamp == T + 1234


@settings(max_examples=300)
@given(
    record_lists(min_size=1, max_size=6),
    st.sampled_from(Compression),
    st.sampled_from(Compression),
    st.sampled_from(TimestampType),
)
def test_recompression_without_decoding_builds_the_same_batch(
    records: list[Record],
    source: Compression,
    target: Compression,
    timestamp_type: TimestampType,
) -> None:
    """The result is byte for byte equal to a new batch of the records."""
    numbered = [
        record._replace(offset=index, timestamp=abs(record.timestamp) % (2 * T))
        for index, record in enumerate(records)
    ]
    policy = AppendPolicy(
        compression=target, timestamp_type=timestamp_type, timestamp_after_max_ms=2**63 - 1
    )
    data = build_batch(numbered, compression=source)
    assigned = validate_and_assign(
        bytearray(data), next_offset=0, leader_epoch=4, now_ms=T, policy=policy
    )
    expected = build_batch(
        numbered,
        compression=target,
        timestamp_type=timestamp_type,
        max_timestamp=T,
        partition_leader_epoch=4,
    )
    if source is not target:
        assert bytes(assigned.buffer) == bytes(expected)
    header = read_header(assigned.buffer)
    assert decompress(target, memoryview(assigned.buffer)[61:]) == decompress(
        target, memoryview(expected)[61:]
    )
    assert [record.value for record in read_records(assigned.buffer, 0, header)] == [
        record.value for record in records
    ]

"""The fast path of validation accepts only what the normal path accepts, with equal results."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import KafkaError
from penstock.records.append_policy import AppendOrigin, AppendPolicy
from penstock.records.batch import compute_crc, read_header, verify, write_crc
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.read import read_records
from penstock.records.record import Record
from penstock.records.validate import Append, Assigned, validate_any
from tests.support.storage.batches import T, record_lists
from tests.support.storage.validation import (
    max_timestamp_of,
    offset_of_max_timestamp,
    validate_and_assign,
)

policies = st.builds(
    AppendPolicy,
    compression=st.none() | st.sampled_from([Compression.NONE, Compression.GZIP]),
    timestamp_before_max_ms=st.sampled_from([2**63 - 1, 500, 0]),
    timestamp_after_max_ms=st.sampled_from([2**63 - 1, 500, 0]),
    compacted=st.booleans(),
    max_message_bytes=st.sampled_from([1_048_588, 200]),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Record], bytearray]:
    """Batches of a client, some of them with a changed byte."""
    records = [
        record._replace(offset=index)
        for index, record in enumerate(draw(record_lists(min_size=1, max_size=5)))
    ]
    producer = draw(st.sampled_from([(-1, -1, -1, False), (5, 1, 7, False), (5, 1, 7, True)]))
    batch = build_batch(
        records,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=producer[3],
        compression=draw(st.sampled_from([Compression.NONE] * 3 + [Compression.LZ4])),
    )
    if draw(st.booleans()):
        batch[draw(st.integers(0, len(batch) - 1))] = draw(st.integers(0, 255))
        if draw(st.integers(0, 3)):
            write_crc(batch, 0, compute_crc(batch, 0, len(batch)))
    return records, batch


def described(assigned: Assigned) -> tuple[object, ...]:
    return (
        bytes(assigned.buffer),
        assigned.headers,
        assigned.headers[0].base_offset,
        assigned.last_offset,
        max_timestamp_of(assigned),
        offset_of_max_timestamp(assigned),
    )


@settings(max_examples=300)
@given(batches(), policies)
def test_both_paths_agree(sent: tuple[list[Record], bytearray], policy: AppendPolicy) -> None:
    _, batch = sent
    short: tuple[object, ...] | str
    long: tuple[object, ...] | str
    try:
        short = described(
            validate_and_assign(
                bytearray(batch), next_offset=100, leader_epoch=5, now_ms=T, policy=policy
            )
        )
    except KafkaError as error:
        short = str(error)
    try:
        long = described(
            validate_any(bytearray(batch), Append(100, 5, T, policy, AppendOrigin.CLIENT))
        )
    except KafkaError as error:
        long = str(error)
    assert short == long


@settings(max_examples=200)
@given(batches(), policies)
def test_accepted_batches_are_consistent(
    sent: tuple[list[Record], bytearray], policy: AppendPolicy
) -> None:
    """They have a valid CRC, the assigned offsets and the stated number of records."""
    _, batch = sent
    before = bytes(batch)
    try:
        assigned = validate_and_assign(
            batch, next_offset=100, leader_epoch=5, now_ms=T, policy=policy
        )
    except KafkaError:
        assert batch == before, "what is refused is left unchanged"
        return
    header = read_header(assigned.buffer)
    verify(assigned.buffer, 0, header)
    records = read_records(assigned.buffer)
    assert [record.offset for record in records] == list(range(100, 100 + len(records)))
    assert assigned.last_offset == records[-1].offset == header.last_offset
    assert header.max_timestamp == max(-1, *(record.timestamp for record in records))
    assert not policy.compacted or all(record.key is not None for record in records)

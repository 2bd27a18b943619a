"""Verification of fetched batches: both modules agree, and agree with the one for any batch."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import KafkaError
from penstock.records import _fetched
from penstock.records.fetched import verify_fetched, verify_plain
from tests.support.storage.compiled_modules import same
from tests.support.storage.logs import NOW, batch, old_message

EPOCH = 3

batches = st.builds(
    lambda values, gap, lag, epoch, producer_id: (values, gap, lag, epoch, producer_id),
    st.lists(st.binary(max_size=20), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(-5, 5),
    st.sampled_from([EPOCH] * 9 + [EPOCH - 1, EPOCH + 1]),
    st.sampled_from([-1] * 9 + [7]),
)


@given(
    st.lists(batches, max_size=8),
    st.integers(0, 80),
    st.none() | st.tuples(st.integers(0, 300), st.integers(1, 255)),
    st.sampled_from([b""] * 5 + [bytes(old_message(0, b"v"))]),
)
def test_plain_batches_are_verified_like_any(
    parts: list[tuple[list[bytes], int, int, int, int]],
    missing: int,
    damage: tuple[int, int] | None,
    before: bytes,
) -> None:
    data = bytearray(before)
    offset = 0
    for values, gap, lag, epoch, producer_id in parts:
        data += batch(
            *values,
            base_offset=offset + gap,
            timestamp=NOW + lag,
            leader_epoch=epoch,
            producer_id=producer_id,
            sequence=0 if producer_id >= 0 else -1,
        )
        offset += gap + len(values)
    del data[len(data) - missing :]
    if damage is not None and damage[0] < len(data):
        data[damage[0]] ^= damage[1]

    same(_fetched, lambda module: module.scan_plain_batches(bytes(data), EPOCH))
    plain = verify_plain(bytes(data), EPOCH)
    if plain is None:
        return
    try:
        headers, size = verify_fetched(bytes(data), EPOCH)
    except KafkaError:
        # Only what follows the whole batches may be invalid: it is fetched again.
        headers, size = verify_fetched(bytes(data[: plain.size]), EPOCH)
    assert plain.size == size
    assert list(plain.base_offsets) == [header.base_offset for header in headers]
    assert list(plain.last_offsets) == [header.last_offset for header in headers]
    latest = [
        max(headers[: index + 1], key=lambda header: header.max_timestamp)
        for index in range(len(headers))
    ]
    assert list(plain.max_timestamps) == [header.max_timestamp for header in latest]
    assert list(plain.max_timestamp_offsets) == [header.last_offset for header in latest]
    position = 0
    for header, start in zip(headers, plain.positions, strict=True):
        assert start == position
        assert header.producer_id == -1
        position += header.size

"""Compaction and the state of producers and their transactions (S5, P3, P4)."""

from dataclasses import replace
from struct import pack

import pytest

from penstock.records.build import build_batch
from penstock.records.record import Record
from penstock.storage.log.log_loader import ProducerLimits
from penstock.storage.log.results import FetchIsolation
from tests.support.storage.cleaning import COMPACT, Broker, cleaned, header_of
from tests.support.storage.logs import headers_of

RETENTION = COMPACT.delete_retention_ms
NOW = 1_700_000_000_000


@pytest.fixture
def broker() -> Broker:
    return Broker()


class TestProducers:
    def test_the_last_batch_of_a_producer_is_kept_for_its_sequence(self, broker: Broker) -> None:
        """S5, P3."""
        for n in range(3):
            broker.append((b"a", b"%d" % n), (b"b", b"%d" % n), producer_id=9)
        broker.append((b"a", b"x"), (b"b", b"x"))
        assert cleaned(broker) == [(b"a", b"x"), (b"b", b"x")]
        header = headers_of(broker.log)[0]
        assert (header.base_offset, header.last_offset, header.records_count) == (4, 5, 0)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 0, 4)
        assert header.last_sequence == 5

    @pytest.mark.parametrize("clean", [True, False])
    def test_the_producer_continues_after_a_restart(self, broker: Broker, clean: bool) -> None:
        """P3: nothing is out of order, and a repeated batch is known."""
        broker.append((b"a", b"1"), (b"b", b"1"), producer_id=9)
        broker.append((b"a", b"2"), (b"b", b"2"))
        cleaned(broker)
        if clean:
            broker.stop()
        else:
            broker.kill()
        for name in broker.disk.names("/data/accounts-0"):
            if name.endswith(".snapshot"):
                broker.disk.remove(f"/data/accounts-0/{name}")
        broker.start()
        end = broker.log.log_end_offset
        broker.sequences[9] = 0
        assert broker.append((b"a", b"1"), (b"b", b"1"), producer_id=9) == 0
        assert broker.log.log_end_offset == end
        assert broker.append((b"a", b"3"), producer_id=9) == end

    def test_a_producer_that_was_forgotten_needs_no_batch(self) -> None:
        broker = Broker(limits=ProducerLimits(producer_id_expiration_ms=1000))
        broker.append((b"a", b"1"), producer_id=9)
        broker.append((b"a", b"2"))
        broker.advance(1000)
        broker.log.producers.remove_expired(broker.clock.now_ms())
        cleaned(broker)
        assert all(not header.has_producer_id for header in headers_of(broker.log))


class TestTransactions:
    def test_aborted_records_go_whatever_their_keys(self, broker: Broker) -> None:
        """S5, P4."""
        broker.append((b"a", b"1"))
        broker.append((b"a", b"aborted"), (b"only", b"aborted"), producer_id=1, transactional=True)
        broker.end_txn(1, commit=False)
        broker.append((b"b", b"1"), producer_id=1, transactional=True)
        broker.end_txn(1, commit=True)
        assert cleaned(broker) == [(b"a", b"1"), (b"b", b"1")]
        assert broker.table()[b"a"] == b"1"

    def test_a_commit_marker_is_kept_while_its_records_remain(self, broker: Broker) -> None:
        broker.append((b"a", b"1"), producer_id=1, transactional=True)
        at = broker.end_txn(1, commit=True)
        for _ in range(3):
            assert (b"a", b"1") in cleaned(broker)
            broker.advance(RETENTION)
        assert not header_of(broker, at).has_delete_horizon
        assert at in broker.markers()

    def test_a_commit_marker_is_removed_after_the_delete_horizon(self, broker: Broker) -> None:
        broker.append((b"a", b"1"), producer_id=1, transactional=True)
        at = broker.end_txn(1, commit=True)
        broker.append((b"a", b"2"), producer_id=1, transactional=True)
        broker.end_txn(1, commit=True)
        cleaned(broker)
        assert not header_of(broker, at).has_delete_horizon
        cleaned(broker)
        assert header_of(broker, at).delete_horizon_ms == broker.clock.now_ms() + RETENTION
        assert header_of(broker, at).max_timestamp == NOW
        broker.advance(RETENTION - 1)
        cleaned(broker)
        assert at in broker.markers()
        broker.advance(1)
        cleaned(broker)
        assert at not in broker.markers()

    def test_an_abort_marker_is_removed_after_the_delete_horizon(self, broker: Broker) -> None:
        broker.append((b"a", b"1"), producer_id=1, transactional=True)
        at = broker.end_txn(1, commit=False)
        broker.append((b"a", b"2"), producer_id=1, transactional=True)
        broker.end_txn(1, commit=True)
        cleaned(broker)
        # The cleaning that drops them has read them, so the index has them.
        assert [txn.first_offset for txn in broker.log.aborted_transactions(0, 10)] == [0]
        cleaned(broker)
        assert broker.log.aborted_transactions(0, 10) == []
        assert header_of(broker, at).has_delete_horizon
        broker.advance(RETENTION)
        cleaned(broker)
        assert at not in broker.markers()
        assert broker.table()[b"a"] == b"2"

    def test_an_emptied_aborted_batch_keeps_its_marker_and_index_entry(
        self, broker: Broker
    ) -> None:
        broker.append((b"a", b"1"), producer_id=1, transactional=True)
        at = broker.end_txn(1, commit=False)
        for _ in range(3):
            assert cleaned(broker) == []
            broker.advance(RETENTION)
        assert headers_of(broker.log)[0].records_count == 0
        assert at in broker.markers()
        assert [txn.last_offset for txn in broker.log.aborted_transactions(0, 10)] == [at]

    def test_the_last_marker_of_a_producer_is_kept_for_its_epoch(self, broker: Broker) -> None:
        """Its epoch has only the marker: without it a zombie would not be fenced."""
        broker.append((b"a", b"1"), producer_id=1, transactional=True)
        bumped = build_marker(producer_epoch=1)
        broker.log.append_as_follower(as_follower(bumped, broker.log.log_end_offset))
        broker.log.update_high_watermark(broker.log.log_end_offset)
        for _ in range(4):
            assert cleaned(broker) == []
            broker.advance(RETENTION)
        header = headers_of(broker.log)[0]
        assert (header.is_control, header.producer_epoch, header.records_count) == (True, 1, 0)
        assert broker.log.producers.active_producers()[1].producer_epoch == 1

    def test_a_transaction_over_several_segments(self) -> None:
        broker = Broker(replace(COMPACT, segment_bytes=200))
        for n in range(4):
            broker.append((b"a", b"aborted-%d" % n), producer_id=1, transactional=True)
            broker.append((b"b", b"committed-%d" % n), producer_id=2, transactional=True)
            broker.append((b"c", b"plain-%d" % n))
            broker.roll()
        broker.end_txn(1, commit=False)
        broker.end_txn(2, commit=True)
        assert cleaned(broker) == [(b"b", b"committed-3"), (b"c", b"plain-3")]
        assert broker.table() == {b"b": b"committed-3", b"c": b"plain-3", b"active": b"-"}

    def test_a_marker_in_a_segment_that_is_not_cleaned_yet(self, broker: Broker) -> None:
        broker.append((b"a", b"0"))
        broker.append((b"a", b"aborted"), producer_id=1, transactional=True)
        broker.roll()
        broker.end_txn(1, commit=False)
        broker.append((b"a", b"later"), producer_id=1, transactional=True)
        assert broker.clean() == 1
        assert broker.log.last_stable_offset == 3
        assert broker.pairs() == [(b"a", b"0"), (b"a", b"later")]
        assert broker.table() == {b"a": b"0"}
        fetched = broker.log.read(0, 10_000, FetchIsolation.TXN_COMMITTED)
        assert fetched.aborted_transactions is not None
        assert [txn.last_offset for txn in fetched.aborted_transactions] == [2]


def build_marker(*, producer_epoch: int) -> bytearray:
    key, value = pack(">hh", 0, 0), pack(">hi", 0, 0)
    return build_batch(
        [Record(0, NOW, key, value)],
        producer_id=1,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def as_follower(batch: bytearray, offset: int) -> bytearray:
    batch[:8] = pack(">q", offset)
    return batch

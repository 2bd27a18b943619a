"""Requests between brokers that arrive a second time, at the worst moment.

A connection may stall, so that its sender gives up and sends the request again on another one; the
first request arrives when everything has changed. By chance it rarely does any harm. `LateRequests`
therefore looks at the brokers and lets a copy of a request arrive when it says something that was
true once and is wrong now:

- a Fetch of a follower acknowledges records that the follower has dropped since,
- a marker would end another transaction of the producer than the one that it was written for.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from penstock.core.ids import TopicPartition
from penstock.protocol.fields import Message
from penstock.protocol.messages.fetch import FetchRequest
from penstock.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from penstock.storage.log.log import Log
from penstock.storage.producer.append_info import EPOCH_BUMP_TRANSACTION_VERSION
from tests.sim.cluster.cluster_broker import SimBroker
from tests.sim.txn_loop import SimLoop

MAX_LATENESS_S: Final = 10.0
"""A copy for which there was no such moment until then is lost."""
_POLL_S: Final = 0.05


class LateRequests:
    """The copies of requests that are on their way."""

    def __init__(self, loop: SimLoop, brokers: Mapping[int, SimBroker]) -> None:
        self._loop = loop
        self._brokers = brokers
        self.are_enabled = False
        self.on_arrival: Callable[[SimBroker], None] = lambda receiver: None
        """Called when a broker gets a copy."""

    def add(self, source: int, target: int, message: Message, arrive: Callable[[], None]) -> None:
        """Calls `arrive` for a copy of the request at the worst moment, if there is one."""
        if not self.are_enabled or source not in self._brokers:
            return
        match message:
            case FetchRequest(session_epoch=0):
                # Others are refused because their sessions have ended.
                is_harmful = self._harmful_fetch(source, target, message)
            case WriteTxnMarkersRequest():
                is_harmful = self._harmful_markers(target, message)
            case _:
                return
        receiver = self._brokers[target]
        deadline = self._loop.time() + MAX_LATENESS_S

        def poll() -> None:
            if self._brokers.get(target) is not receiver or self._loop.time() > deadline:
                return
            if receiver.is_up and is_harmful():
                self._loop.call_soon(arrive, context=receiver.process.context)
                self.on_arrival(receiver)
            else:
                self._loop.call_later(_POLL_S, poll, context=self._loop.outside)

        self._loop.call_later(_POLL_S, poll, context=self._loop.outside)

    def _harmful_fetch(self, source: int, target: int, fetch: FetchRequest) -> Callable[[], bool]:
        fetched = {
            (topic.topic_id, partition.partition): partition
            for topic in fetch.topics
            for partition in topic.partitions
        }

        def is_harmful() -> bool:
            follower = self._brokers.get(source)
            if follower is None or not follower.is_up:
                return False
            for replica in self._brokers[target].app.broker.replicas:
                partition = replica.partition
                data = fetched.get((partition.topic_id, partition.key.partition))
                if (
                    data is not None
                    and source in partition.followers
                    and partition.leader_epoch > data.current_leader_epoch
                ):
                    log = _log_of(follower, partition.key)
                    if log is not None and log.log_end_offset < data.fetch_offset:
                        return True
            return False

        return is_harmful

    def _harmful_markers(self, target: int, request: WriteTxnMarkersRequest) -> Callable[[], bool]:
        ends = {
            (marker.producer_id, key): log.log_end_offset
            for marker in request.markers
            for key in _partitions(marker)
            if (log := _log_of(self._brokers[target], key)) is not None
        }

        def is_harmful() -> bool:
            for marker in request.markers:
                for key in _partitions(marker):
                    log = _log_of(self._brokers[target], key)
                    entry = None if log is None else log.producers.last_entry(marker.producer_id)
                    if (
                        entry is not None
                        and entry.current_txn_first_offset is not None
                        and entry.current_txn_first_offset >= ends.get((marker.producer_id, key), 0)
                        and (
                            # Before, a marker of the same coordinator cannot be told apart.
                            marker.transaction_version >= EPOCH_BUMP_TRANSACTION_VERSION
                            or entry.coordinator_epoch > marker.coordinator_epoch
                        )
                    ):
                        return True
            return False

        return is_harmful


def _partitions(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for number in topic.partition_indexes:
            yield TopicPartition(topic.name, number)


def _log_of(broker: SimBroker, key: TopicPartition) -> Log | None:
    replica = broker.app.broker.replicas.by_topic.get(key.topic, {}).get(key.partition)
    log = None if replica is None else replica._log
    return None if log is None or log.failure is not None else log

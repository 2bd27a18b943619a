"""Metrics of the groups and transactions that this broker coordinates."""

from collections import Counter
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.metrics.exposition import Exposition
from penstock.broker.pacer import Steps
from penstock.coordinator.group.group_types import type_of
from penstock.coordinator.group.shard import GroupShard
from penstock.coordinator.txn.state import TransactionState
from penstock.core.errors import KafkaError

_OFFSETS_AT_ONCE: Final = 50


def collect_groups(exposition: Exposition, broker: Broker) -> Steps[None]:
    loaded, loading = broker.groups.shards()
    partitions = exposition.gauge(
        "penstock_coordinator_partitions",
        "Partitions of __consumer_offsets and __transaction_state coordinated here, by state.",
    )
    partitions.add(len(loaded), coordinator="group", state="loaded")
    partitions.add(loading, coordinator="group", state="loading")
    loaded_transactions, loading_transactions = broker.transactions.shards()
    partitions.add(len(loaded_transactions), coordinator="transaction", state="loaded")
    partitions.add(loading_transactions, coordinator="transaction", state="loading")
    groups: Counter[tuple[str, str]] = Counter()
    for shard in loaded:
        for group in list(shard.groups.values()):
            yield
            groups[type_of(group).name, group.state.value] += 1
    family = exposition.gauge(
        "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups by type and state."
    )
    for (protocol, state), count in sorted(groups.items()):
        family.add(count, protocol=protocol, state=state)
    yield from _collect_lags(exposition, broker, loaded)


def _collect_lags(exposition: Exposition, broker: Broker, shards: list[GroupShard]) -> Steps[None]:
    """The lag of a partition is known here if this broker has a replica of it."""
    remaining = broker.config.int("metrics.max.group.partitions")
    lags = exposition.gauge(
        "kafka_consumergroup_lag", "Records between a committed offset and the high watermark."
    )
    offsets = omitted = 0
    by_topic = broker.replicas.by_topic
    for shard in shards:
        for group_id, topics in list(shard.offsets.groups.items()):
            for topic, committed in list(topics.items()):
                replicas = by_topic.get(topic, {})
                for partition, value in list(committed.items()):
                    if not offsets % _OFFSETS_AT_ONCE:
                        yield
                    offsets += 1
                    replica = replicas.get(partition)
                    if replica is None or not remaining:
                        omitted += 1
                        continue
                    try:
                        lag = replica.log_to_read.high_watermark - value.offset
                    except KafkaError:
                        omitted += 1
                        continue
                    remaining -= 1
                    lags.add(
                        max(lag, 0),
                        consumergroup=group_id,
                        topic=topic,
                        partition=str(partition),
                    )
    exposition.gauge(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets", "Committed offsets."
    ).add(offsets)
    exposition.gauge(
        "penstock_consumergroup_lag_omitted",
        "Committed offsets without a lag: no replica here, or metrics.max.group.partitions.",
    ).add(omitted)


def collect_transactions(exposition: Exposition, broker: Broker) -> Steps[None]:
    loaded, _ = broker.transactions.shards()
    states: Counter[str] = Counter()
    now_ms: int = broker.clock.now_ms()
    oldest_ms = now_ms
    in_doubt = 0
    for shard in loaded:
        in_doubt += len(shard.in_doubt)
        for metadata in list(shard.transactions.values()):
            yield
            states[metadata.state.state_name] += 1
            is_open = metadata.state is TransactionState.ONGOING or metadata.state.is_ending
            if is_open and metadata.start_ms >= 0:
                oldest_ms = min(oldest_ms, metadata.start_ms)
    family = exposition.gauge("penstock_transactions", "Transactional ids by state.")
    for state, count in sorted(states.items()):
        family.add(count, state=state)
    exposition.gauge(
        "penstock_transaction_oldest_open_seconds", "The age of the oldest open transaction."
    ).add(max(0, now_ms - oldest_ms) / 1000)
    exposition.gauge(
        "penstock_transactions_in_doubt", "Transactions whose outcome a damaged log has lost."
    ).add(in_doubt)

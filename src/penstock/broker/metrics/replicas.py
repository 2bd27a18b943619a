"""Metrics of replicas, topics and log directories (Kafka's ReplicaManager, BrokerTopicMetrics)."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.metrics.exposition import Exposition, Family
from penstock.broker.pacer import Steps
from penstock.broker.replica.isr_manager import ReplicationStatus
from penstock.broker.replica.replica import Replica
from penstock.broker.replica.topic_traffic import TopicTraffic
from penstock.core.errors import KafkaError

OTHER_TOPICS: Final = "(other)"
"""The label of the topics above `metrics.max.topics`; no topic can have this name."""
_TOPICS_AT_ONCE: Final = 50


class _ReplicaTotals:
    """What one pass over the replicas adds up."""

    def __init__(self, status: ReplicationStatus) -> None:
        self.status = status
        self.partitions = 0
        self.offline = 0
        self.max_lag = 0
        self.size_by_topic: Counter[str] = Counter()
        self.size_by_dir: Counter[str] = Counter()


def collect_replicas(exposition: Exposition, broker: Broker) -> Steps[None]:
    totals = _ReplicaTotals(broker.isr_manager.counters())
    for replica in list(broker.replicas):
        yield
        _add_replica(totals, broker, replica)
    _write_replica_manager(exposition, totals)
    _write_log_dirs(exposition, broker, totals.size_by_dir)
    limit = broker.config.int("metrics.max.topics")
    sizes = exposition.gauge("kafka_log_log_size", "Bytes of records in the logs of a topic.")
    yield from _write_by_topic(sizes, totals.size_by_topic, limit)
    yield from _write_traffic(exposition, broker, limit)


def _add_replica(totals: _ReplicaTotals, broker: Broker, replica: Replica) -> None:
    totals.partitions += 1
    totals.status.add(replica)
    replica.count_messages()
    try:
        log = replica.log
    except KafkaError:
        totals.offline += 1
        return
    size = log.size
    totals.size_by_topic[replica.partition.key.topic] += size
    totals.size_by_dir[log.directory.rpartition("/")[0]] += size
    fetchers = broker.replicas.fetchers
    if fetchers is not None and not replica.partition.is_leader:
        totals.max_lag = max(totals.max_lag, fetchers.lag(replica.partition.key) or 0)


def _write_replica_manager(exposition: Exposition, totals: _ReplicaTotals) -> None:
    status = totals.status
    prefix = "kafka_server_replicamanager"
    for name, value, documentation in (
        ("partitioncount", totals.partitions, "Replicas on this broker."),
        ("leadercount", status.leaders, "Partitions that this broker leads."),
        ("underreplicatedpartitions", status.under_replicated, "Led, with replicas not in sync."),
        ("underminisrpartitioncount", status.under_min_isr, "Led, below min.insync.replicas."),
        ("atminisrpartitioncount", status.at_min_isr, "Led, exactly at min.insync.replicas."),
        ("reassigningpartitions", status.reassigning, "Led, and being reassigned."),
        ("offlinereplicacount", totals.offline, "Replicas without a usable log."),
    ):
        exposition.gauge(f"{prefix}_{name}", documentation).add(value)
    for name, value, documentation in (
        ("isrexpands", status.isr_expands, "Replicas that came back into an ISR."),
        ("isrshrinks", status.isr_shrinks, "Changes that removed replicas from an ISR."),
        ("failedisrupdates", status.failed_isr_updates, "Refused changes of an ISR."),
    ):
        exposition.counter(f"{prefix}_{name}_total", documentation).add(value)
    exposition.gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Records by which the slowest replica here is behind its leader.",
    ).add(totals.max_lag)


def _write_log_dirs(exposition: Exposition, broker: Broker, sizes: Mapping[str, int]) -> None:
    dirs = broker.logs.dirs
    exposition.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed."
    ).add(sum(not log_dir.is_online for log_dir in dirs))
    offline = exposition.gauge(
        "kafka_log_logmanager_logdirectoryoffline", "1 for a log directory that has failed."
    )
    hanging = exposition.gauge(
        "penstock_log_directory_hanging", "1 for a log directory that does not respond."
    )
    size = exposition.gauge(
        "penstock_log_directory_size_bytes", "Bytes of records in a log directory."
    )
    for log_dir in dirs:
        offline.add(int(not log_dir.is_online), logdirectory=log_dir.path)
        hanging.add(int(log_dir.is_hanging), logdirectory=log_dir.path)
        size.add(sizes.get(log_dir.path.rstrip("/"), 0), logdirectory=log_dir.path)
    flusher = broker.log_flusher
    exposition.histogram(
        "kafka_log_logflushstats_logflushtime_seconds", "Times of flushes to the disk."
    ).add_histogram(flusher.flush_times)
    running = flusher.running_logs
    exposition.gauge("penstock_log_flushes_running", "Flushes in progress.").add(len(running))
    exposition.gauge(
        "penstock_log_flush_oldest_seconds", "For how long the oldest of them has been running."
    ).add(max(map(flusher.running_s, running), default=0.0))


def _write_traffic(exposition: Exposition, broker: Broker, limit: int) -> Steps[None]:
    prefix = "kafka_server_brokertopicmetrics"
    total = TopicTraffic()
    total.add(broker.replicas.past_traffic)
    by_topic = dict(broker.replicas.traffic)
    for number, traffic in enumerate(by_topic.values()):
        if not number % _TOPICS_AT_ONCE:
            yield
        total.add(traffic)
    for name, value, documentation in (
        ("replicationbytesin", total.replication_bytes_in, "Bytes fetched from leaders."),
        ("replicationbytesout", total.replication_bytes_out, "Bytes fetched by followers."),
    ):
        exposition.counter(f"{prefix}_{name}_total", documentation).add(value)
    for name, field, documentation in (
        ("messagesin", "messages_in", "Records written by clients, in all and by topic."),
        ("bytesin", "bytes_in", "Bytes written by clients, in all and by topic."),
        ("bytesout", "bytes_out", "Bytes read by consumers, in all and by topic."),
    ):
        family = exposition.counter(f"{prefix}_{name}_total", documentation)
        family.add(getattr(total, field))
        values = {topic: getattr(traffic, field) for topic, traffic in by_topic.items()}
        yield from _write_by_topic(family, values, limit)


def _write_by_topic(family: Family, values: Mapping[str, int], limit: int) -> Steps[None]:
    """Adds a sample for each of the first `limit` topics, and one for the sum of the others."""
    others = 0
    for number, (topic, value) in enumerate(values.items()):
        if not number % _TOPICS_AT_ONCE:
            yield
        if number < limit:
            family.add(value, topic=topic)
        else:
            others += value
    if len(values) > limit:
        family.add(others, topic=OTHER_TOPICS)

"""Brokers that have replicas, but are not started on this machine any more."""

import logging
from collections.abc import Iterable, Sequence

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.offline.log_dirs import has_partitions, node_directories
from penstock.controller.metadata import Record, TopicRecord
from penstock.core.errors import KafkaStorageError
from penstock.core.name_lists import shorten_names

logger = logging.getLogger(__name__)


def warn_of_missing_brokers(records: Iterable[Record], broker_ids: Sequence[int]) -> None:
    """Logs each broker that has replicas but is not among `broker_ids`, with its topics."""
    for broker_id, topics in missing_brokers(records, broker_ids).items():
        logger.warning(
            "broker %d has replicas of %s, but only %s started: those replicas are offline; start "
            "penstock serve with more --brokers, or move the replicas first",
            broker_id,
            shorten_names(topics),
            "1 broker is" if len(broker_ids) == 1 else f"{len(broker_ids)} brokers are",
        )


def missing_brokers(records: Iterable[Record], broker_ids: Iterable[int]) -> dict[int, list[str]]:
    """Returns the brokers that have replicas but are not among `broker_ids`, with their topics."""
    present = frozenset(broker_ids)
    missing: dict[int, list[str]] = {}
    for record in records:
        if isinstance(record, TopicRecord):
            replicas = {
                broker_id
                for assignment in record.assignments.values()
                for broker_id in assignment.replicas
            }
            for broker_id in sorted(replicas - present):
                missing.setdefault(broker_id, []).append(record.topic)
    return dict(sorted(missing.items()))


def require_no_other_logs(config: BrokerConfig) -> None:
    """Raises KafkaStorageError if other brokers of a supervisor have logs in these directories.

    A broker whose store has no topics must not register the topics of its own logs alone: the other
    replicas would be stray, and may have records that were committed and that it does not have.
    """
    first_id, *others = (
        node_id
        for index, (node_id, paths) in enumerate(node_directories(config))
        if index == 0 or any(map(has_partitions, paths))
    )
    if others:
        raise KafkaStorageError(
            "the metadata store has no topics, but log.dirs has the logs of "
            f"{len(others)} more broker{'s' if len(others) > 1 else ''}",
            remedy=f"start all of them: penstock serve --brokers {max(others) + 1 - first_id}",
        )

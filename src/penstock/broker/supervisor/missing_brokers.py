"""Brokers that have replicas, but are not started on this machine any more."""

import logging
from collections.abc import Iterable, Sequence

from penstock.controller.metadata import Record, TopicRecord
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

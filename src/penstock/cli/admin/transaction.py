"""`penstock txn`: transactions and their producers (kafka-transactions.sh; P4)."""

import time
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.admin.hanging_transactions import OpenTransaction, candidates, hanging
from penstock.cli.admin.topic_selection import ClusterTopics
from penstock.cli.app import new_group
from penstock.cli.names import one_partition
from penstock.cli.options import argument, option
from penstock.cli.output import UsageError, moment
from penstock.cli.session import YES, Session, command
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.admin import Admin

app = new_group("Transactions: list, describe, abort, find those that hang.")

_DESCRIPTION = attrgetter("coordinator_id", "producer_id", "producer_epoch", "state", "timeout_ms")
_BATCH = 500
"""The number of partitions in one request."""


class State(StrEnum):
    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare-commit"
    PREPARE_ABORT = "prepare-abort"
    COMPLETE_COMMIT = "complete-commit"
    COMPLETE_ABORT = "complete-abort"
    PREPARE_EPOCH_FENCE = "prepare-epoch-fence"


ON_BROKER = option("--broker", help="Query this broker instead of the leader.")


@command(app, "list")
def list_transactions(
    session: Session,
    state: list[State] | None = option("--state", help="Only in this state; may be repeated."),
    producer_id: list[int] | None = option(
        "--producer-id", help="Only of this producer; may be repeated."
    ),
    duration: int | None = option("--duration", metavar="MS", help="Only those open for longer."),
    match: str | None = option("--match", metavar="RE2", help="Only ids that match."),
) -> None:
    """List transactional ids and their states."""
    from penstock.client.admin import TransactionState

    with session.admin() as admin:
        transactions = admin.list_transactions(
            states=[TransactionState[chosen_state.name] for chosen_state in state or []],
            producer_ids=producer_id or [],
            running_longer_than_ms=duration,
            transactional_id_pattern=match,
        )
    rows = [
        (transaction.transactional_id, coordinator, transaction.producer_id, transaction.state)
        for coordinator, listed in transactions.items()
        for transaction in listed
    ]
    session.out.table(
        ["Transactional id", "Coordinator", "Producer id", "State"],
        sorted(rows),
        empty="there are no transactions",
    )


@command(app, "describe")
def describe(
    session: Session,
    ids: list[str] = argument(
        "TRANSACTIONAL_ID", help="The transactional id.", autocompletion=complete.transactional_ids
    ),
) -> None:
    """Show the state of transactional ids, and the partitions of open transactions."""
    with session.admin() as admin:
        transactions = admin.describe_transactions(ids)
    now_ms = int(time.time() * 1000)
    started_ms = {name: transaction.start_time_ms for name, transaction in transactions.items()}
    moments = {name: None if at is None else moment(at) for name, at in started_ms.items()}
    durations = {name: None if at is None else now_ms - at for name, at in started_ms.items()}
    columns = ["Transactional id", "Coordinator", "Producer id", "Epoch", "State", "Timeout ms"]
    session.out.table(
        [*columns, "Started", "Duration ms", "Partitions"],
        [
            (
                name,
                *_DESCRIPTION(transaction),
                moments[name],
                durations[name],
                transaction.partitions,
            )
            for name, transaction in transactions.items()
        ],
        document=[
            {"transactional_id": name, **transaction._asdict(), "duration_ms": durations[name]}
            for name, transaction in transactions.items()
        ],
    )


@command(app, "producers")
def producers(
    session: Session,
    partitions: list[str] = argument(
        "TOPIC[:PARTITIONS]", help="The partitions.", autocompletion=complete.topics
    ),
    broker: int | None = ON_BROKER,
) -> None:
    """Show the producers of a partition: kafka-transactions.sh describe-producers."""
    with session.admin() as admin:
        chosen = _partitions(admin, partitions, None)
        producers_by_partition = admin.describe_producers(chosen, broker_id=broker)
    columns = ["Topic", "Partition", "Producer id", "Producer epoch", "Last sequence"]
    session.out.table(
        [*columns, "Last timestamp", "Coordinator epoch", "Transaction start offset"],
        [
            (*partition, *state[:3], moment(state.last_timestamp), *state[4:])
            for partition, states in sorted(producers_by_partition.items())
            for state in states
        ],
        document=[
            {"topic": partition.topic, "partition": partition.partition} | state._asdict()
            for partition, states in sorted(producers_by_partition.items())
            for state in states
        ],
        empty="the partitions have no producers",
    )


@command(app, "abort")
def abort(
    session: Session,
    partition: str = argument(
        "TOPIC:PARTITION", help="The partition.", autocompletion=complete.topics
    ),
    start_offset: int | None = option(
        "--start-offset", help="The first offset of the open transaction."
    ),
    producer_id: int | None = option("--producer-id", help="For brokers before 3.0."),
    producer_epoch: int | None = option("--producer-epoch", help="For brokers before 3.0."),
    coordinator_epoch: int | None = option("--coordinator-epoch", help="For brokers before 3.0."),
    yes: bool = YES,
) -> None:
    """Abort a transaction that hangs in one partition, so that readers continue after it.

    Use it for transactions that `penstock txn find-hanging` shows. It bypasses the coordinator: a
    transaction that is still running may then be committed only in part.
    """
    at = one_partition(partition)
    by_hand = (producer_id, producer_epoch, coordinator_epoch)
    with session.admin() as admin:
        if start_offset is not None:
            states = admin.describe_producers([at])[at]
            matching = [
                state for state in states if state.current_transaction_start_offset == start_offset
            ]
            if not matching:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"no open transaction begins at offset {start_offset} of {at}",
                    remedy=(f"penstock txn producers {partition} shows those that are open"),
                )
            epoch = matching[0].coordinator_epoch
            target = (
                matching[0].producer_id,
                matching[0].producer_epoch,
                # A partition without markers accepts any epoch; 0 is the smallest.
                0 if epoch is None or epoch < 0 else epoch,
            )
        elif producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise UsageError(
                "name the transaction: --start-offset, or --producer-id, --producer-epoch and "
                "--coordinator-epoch"
            )
        else:
            target = (producer_id, producer_epoch, max(0, coordinator_epoch))
        if start_offset is not None and any(number is not None for number in by_hand):
            raise UsageError("--start-offset is sufficient", remedy="leave out the other numbers")
        what = f"Abort the transaction of producer {target[0]} (epoch {target[1]}) in {at}?"
        session.confirm(what, yes=yes)
        admin.abort_transaction(at, *target)
    session.out.done(
        f"aborted: producer {target[0]} in {at}",
        at._asdict() | {"producer_id": target[0], "producer_epoch": target[1], "aborted": True},
    )


@command(app, "force-terminate")
def force_terminate(
    session: Session,
    transactional_id: str = argument(
        "TRANSACTIONAL_ID", help="The transactional id.", autocompletion=complete.transactional_ids
    ),
    yes: bool = YES,
) -> None:
    """Abort the open transaction of a transactional id and fence its producer."""
    session.confirm(f"Abort the transaction of {transactional_id} and fence it?", yes=yes)
    with session.admin() as admin:
        admin.force_terminate_transaction(transactional_id)
    session.out.done(
        f"terminated: {transactional_id}",
        {"transactional_id": transactional_id, "terminated": True},
    )


@command(app, "find-hanging")
def find_hanging(
    session: Session,
    partitions: list[str] | None = argument(
        "TOPIC[:PARTITIONS]",
        default=None,
        help="Only these partitions. Default: all.",
        autocompletion=complete.topics,
    ),
    broker: int | None = option("--broker", help="Only partitions of this broker."),
    max_timeout: int = option(
        "--max-transaction-timeout",
        default=15,
        metavar="MINUTES",
        min=0,
        help="Ignore transactions with a newer record.",
    ),
) -> None:
    """Find transactions in partitions that no coordinator will end; `txn abort` ends them."""
    from penstock.client.admin import AdminError

    now_ms = int(time.time() * 1000)
    with session.admin() as admin:
        chosen = _partitions(admin, partitions, broker)
        open_transactions: list[OpenTransaction] = []
        with session.out.progress("looking", len(chosen)) as step:
            for start in range(0, len(chosen), _BATCH):
                some = chosen[start : start + _BATCH]
                states = admin.describe_producers(some, broker_id=broker)
                open_transactions += candidates(states, now_ms, max_timeout * 60_000)
                step(len(some))
        if open_transactions:
            producer_ids = {transaction.producer.producer_id for transaction in open_transactions}
            listed = admin.list_transactions(producer_ids=producer_ids).values()
            ids = {
                listing.producer_id: listing.transactional_id
                for listings in listed
                for listing in listings
            }
            try:
                described = admin.describe_transactions(ids.values()) if ids else {}
            except AdminError as error:
                codes = [failure.code for failure in error.errors.values()]
                if any(code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND for code in codes):
                    raise
                described = error.results
            open_transactions = hanging(open_transactions, ids, described)
    columns = ["Topic", "Partition", "Producer id", "Producer epoch", "Coordinator epoch"]
    rows = [
        (
            *(*partition, state.producer_id, state.producer_epoch, state.coordinator_epoch),
            state.current_transaction_start_offset,
            moment(state.last_timestamp),
            (now_ms - state.last_timestamp) // 60_000,
        )
        for partition, state in open_transactions
    ]
    session.out.table(
        [*columns, "Start offset", "Last timestamp", "Duration min"],
        rows,
        empty="no transaction hangs",
    )


def _partitions(
    admin: "Admin", patterns: list[str] | None, broker: int | None
) -> list[TopicPartition]:
    """Returns the partitions that names or patterns select and that the broker has."""
    topics = ClusterTopics.read(admin)
    chosen = topics.choose(patterns) if patterns else sorted(topics.replicas)
    return [
        partition for partition in chosen if broker is None or broker in topics.replicas[partition]
    ]

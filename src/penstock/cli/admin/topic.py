"""`penstock topic`: what kafka-topics.sh and kafka-leader-election.sh do."""

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import complete
from penstock.cli.admin.json_files import partitions_in
from penstock.cli.admin.topic_selection import ClusterTopics
from penstock.cli.admin.topic_tables import (
    Election,
    PartitionFilter,
    configs_of,
    print_descriptions,
)
from penstock.cli.app import new_group
from penstock.cli.names import (
    and_more,
    choose_topics,
    count_of,
    key_values,
    replica_lists,
)
from penstock.cli.options import argument, flag, option
from penstock.cli.output import UsageError, kafka_id
from penstock.cli.session import DRY_RUN, YES, Session, command
from penstock.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from penstock.client.admin import TopicListing
    from penstock.client.admin.admin import Admin

app = new_group("Topics: create, list, describe, alter, delete, elect leaders.")

TOPICS = argument(
    "TOPIC",
    help="Names, or regular expressions such as 'orders.*'.",
    autocompletion=complete.topics,
)
SOME_TOPICS = argument(
    "TOPIC",
    default=None,
    help="Names, or regular expressions such as 'orders.*'. Default: all.",
    autocompletion=complete.topics,
)
INTERNAL = flag("--internal", help="Internal topics too, such as __consumer_offsets.")
ASSIGNMENT = option(
    "--replica-assignment",
    metavar="B:B,B:B…",
    help="The brokers of each (new) partition, the preferred leader first.",
)


@command(app, "list")
def list_topics(
    session: Session,
    topics: list[str] | None = SOME_TOPICS,
    internal: bool = INTERNAL,
    names_only: bool = flag("--names", "-q", help="Print only names, one per line."),
) -> None:
    """List topics."""
    with session.admin() as admin:
        listed = chosen_topics(admin, topics, internal=internal, must_match=False)
        if names_only:
            session.out.done(listed, list(listed))
            return
        described = admin.describe_topics(listed)
    rows = []
    for topic in described.values():
        replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
        rows.append(
            (topic.name, len(topic.partitions), replicas, topic.is_internal, topic.topic_id)
        )
    session.out.table(
        ["Topic", "Partitions", "Replication factor", "Internal", "Topic id"],
        rows,
        empty="there are no topics",
    )


@command(app, "create")
def create(
    session: Session,
    topics: list[str] = argument("TOPIC", help="Names of the new topics."),
    partitions: int | None = option(
        "--partitions", "-p", min=1, help="Their number. Default: num.partitions of the broker."
    ),
    replication_factor: int | None = option(
        "--replication-factor",
        "-r",
        min=1,
        help="Replicas of each. Default: default.replication.factor of the broker.",
    ),
    config: list[str] | None = option(
        "--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; may be repeated."
    ),
    replica_assignment: str | None = ASSIGNMENT,
    if_not_exists: bool = flag("--if-not-exists", help="Do not fail for topics that exist."),
    dry_run: bool = DRY_RUN,
) -> None:
    """Create topics."""
    from penstock.client.admin import AdminError, NewTopic

    assignments = None
    if replica_assignment is not None:
        if partitions is not None or replication_factor is not None:
            raise UsageError(
                "--replica-assignment sets the number of partitions and replicas",
                remedy="leave out --partitions and --replication-factor",
            )
        assignments = dict(enumerate(replica_lists(replica_assignment)))
    new = [
        NewTopic(
            name,
            partitions or -1,
            replication_factor or -1,
            assignments,
            dict(key_values(config or [], "--config")),
        )
        for name in topics
    ]
    existing: list[str] = []
    with session.admin() as admin:
        try:
            created = admin.create_topics(new, validate_only=dry_run)
        except AdminError as error:
            existing = [
                name
                for name, topic_error in error.errors.items()
                if if_not_exists and topic_error.code is ErrorCode.TOPIC_ALREADY_EXISTS
            ]
            if len(existing) < len(error.errors):
                for name in existing:
                    del error.errors[name]
                raise
            created = error.results
    rows = [
        {
            "topic": name,
            "topic_id": topic.topic_id,
            "partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "created": not dry_run,
        }
        for name, topic in created.items()
    ]
    rows += [{"topic": name, "created": False} for name in existing]
    for name in existing:
        session.out.note(f"topic {name} exists already")
    what = "could be created" if dry_run else "created"
    lines = [
        f"{what}: {name} (partitions: {topic.num_partitions}, replicas: {topic.replication_factor})"
        for name, topic in created.items()
    ]
    session.out.done(lines, rows)


@command(app, "describe")
def describe(
    session: Session,
    topics: list[str] | None = SOME_TOPICS,
    topic_id: str | None = option("--topic-id", help="The topic with this id."),
    internal: bool = INTERNAL,
    under_replicated: bool = flag(
        "--under-replicated-partitions", help="Only partitions with replicas out of sync."
    ),
    unavailable: bool = flag("--unavailable-partitions", help="Only partitions without a leader."),
    under_min_isr: bool = flag(
        "--under-min-isr-partitions", help="Only those with fewer than min.insync.replicas."
    ),
    at_min_isr: bool = flag(
        "--at-min-isr-partitions", help="Only those with just min.insync.replicas."
    ),
    overrides: bool = flag(
        "--topics-with-overrides", help="Only topics with settings of their own."
    ),
) -> None:
    """Show partitions, leaders, replicas and settings of topics."""
    filters = {
        PartitionFilter.UNDER_REPLICATED: under_replicated,
        PartitionFilter.UNAVAILABLE: unavailable,
        PartitionFilter.UNDER_MIN_ISR: under_min_isr,
        PartitionFilter.AT_MIN_ISR: at_min_isr,
    }
    needs = [need for need, is_set in filters.items() if is_set]
    if len(needs) + overrides > 1:
        raise UsageError("choose one of the options that show only some partitions or topics")
    with session.admin() as admin:
        if topic_id is not None:
            names = [name_of_id(admin, topic_id)]
        else:
            names = list(chosen_topics(admin, topics, internal=internal))
        described = admin.describe_topics(names)
        configs = configs_of(admin, names)
    print_descriptions(
        session.out,
        list(described.values()),
        configs,
        need=needs[0] if needs else None,
        only_overrides=overrides,
    )


@command(app, "alter")
def alter(
    session: Session,
    topics: list[str] = TOPICS,
    partitions: int = option(
        "--partitions", "-p", default=..., min=1, help="The new total number."
    ),
    replica_assignment: str | None = ASSIGNMENT,
    if_exists: bool = flag("--if-exists", help="Ignore topics that do not exist."),
    dry_run: bool = DRY_RUN,
) -> None:
    """Add partitions to topics; they cannot be removed again (M1).

    Records with the same key go to other partitions afterwards. `penstock config alter` changes
    settings.
    """
    from penstock.client.admin import NewPartitions

    new = None if replica_assignment is None else replica_lists(replica_assignment)
    with session.admin() as admin:
        names = _existing(admin, topics, if_exists)
        admin.create_partitions(
            {name: NewPartitions(partitions, new) for name in names}, validate_only=dry_run
        )
    what = "could get" if dry_run else "now has"
    session.out.done(
        [f"{name} {what} {count_of(partitions, 'partition')}" for name in names],
        [{"topic": name, "partitions": partitions, "altered": not dry_run} for name in names],
    )


@command(app, "delete")
def delete(
    session: Session,
    topics: list[str] = TOPICS,
    if_exists: bool = flag("--if-exists", help="Ignore topics that do not exist."),
    internal: bool = INTERNAL,
    yes: bool = YES,
) -> None:
    """Delete topics and all their records."""
    with session.admin() as admin:
        names = _existing(admin, topics, if_exists, internal=internal)
        if names:
            what = f"Delete {count_of(len(names), 'topic')} with all records: {and_more(names)}?"
            session.confirm(what, yes=yes)
            with session.out.progress("deleting", len(names)) as step:
                for start in range(0, len(names), 100):
                    some = names[start : start + 100]
                    admin.delete_topics(some)
                    step(len(some))
    session.out.done(
        [f"deleted: {name}" for name in names],
        [{"topic": name, "deleted": True} for name in names],
    )


@command(app, "elect")
def elect(
    session: Session,
    partitions: list[str] | None = argument(
        "TOPIC[:PARTITIONS]",
        default=None,
        help="The partitions, such as orders or orders:0,2-4; or --all.",
        autocompletion=complete.topics,
    ),
    all_partitions: bool = flag("--all", help="All partitions."),
    file: Path | None = option(
        "--file",
        metavar="JSON",
        help='Kafka\'s file: {"partitions": [{"topic": "a", "partition": 0}]}.',
    ),
    election: Election = option(
        "--type",
        default=Election.PREFERRED,
        help="unclean may lose records: any replica that is up may become leader.",
    ),
    yes: bool = YES,
) -> None:
    """Elect the leaders of partitions: kafka-leader-election.sh."""
    from penstock.client.admin import ElectionType

    if sum((bool(partitions), all_partitions, file is not None)) != 1:
        raise UsageError("name the partitions: TOPIC[:PARTITIONS], --all or --file")
    kind = ElectionType[election.name]
    with session.admin() as admin:
        chosen = None
        if file is not None:
            chosen = partitions_in(file)
        elif partitions:
            chosen = ClusterTopics.read(admin).choose(partitions)
        if kind is ElectionType.UNCLEAN:
            session.confirm("Records may be lost by an unclean election. Continue?", yes=yes)
        elected = admin.elect_leaders(kind, chosen)
    session.out.table(
        ["Topic", "Partition", "Elected"],
        [
            (partition.topic, partition.partition, previous_leader)
            for partition, previous_leader in sorted(elected.items())
        ],
        empty="no partition needed an election",
    )


def chosen_topics(
    admin: "Admin", patterns: list[str] | None, *, internal: bool, must_match: bool = True
) -> "dict[str, TopicListing | None]":
    """Returns the topics that names or patterns select; None for names of unknown topics."""
    listed = admin.list_topics(include_internal=True)
    hidden = [] if internal else [name for name, topic in listed.items() if topic.is_internal]
    visible = sorted(set(listed) - set(hidden))
    if patterns:
        names = choose_topics(patterns, visible, hidden, must_match=must_match)
    else:
        names = visible
    return {name: listed.get(name) for name in names}


def name_of_id(admin: "Admin", text: str) -> str:
    """Returns the name of the topic with an id."""
    for name, topic in admin.list_topics(include_internal=True).items():
        if topic.topic_id is not None and text in (kafka_id(topic.topic_id), str(topic.topic_id)):
            return name
    raise KafkaError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"no topic has the id {text}",
        remedy="penstock topic list shows ids",
    )


def _existing(
    admin: "Admin", patterns: list[str], if_exists: bool, *, internal: bool = False
) -> list[str]:
    chosen = chosen_topics(admin, patterns, internal=internal, must_match=not if_exists)
    return [name for name, result in chosen.items() if result is not None or not if_exists]

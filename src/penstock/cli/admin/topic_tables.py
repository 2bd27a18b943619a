"""The tables of `penstock topic describe`."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cli.names import count_of
from penstock.cli.output import Marked, Output

if TYPE_CHECKING:
    from penstock.client.admin import ConfigEntry, PartitionDescription, TopicDescription
    from penstock.client.admin.admin import Admin

Configs = Mapping[str, "Mapping[str, ConfigEntry]"]

COLUMNS = ["Partition", "Leader", "Replicas", "Isr", "Elr", "Last known elr"]


class Election(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class PartitionFilter(StrEnum):
    """The conditions that `penstock topic describe` can select partitions by."""

    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under min.insync.replicas"
    AT_MIN_ISR = "at min.insync.replicas"

    def matches(self, partition: "PartitionDescription", min_isr: int) -> bool:
        if self is PartitionFilter.UNDER_REPLICATED:
            return len(partition.isr) < len(partition.replicas)
        if self is PartitionFilter.UNAVAILABLE:
            return partition.leader is None
        if self is PartitionFilter.UNDER_MIN_ISR:
            return len(partition.isr) < min_isr
        return len(partition.isr) == min_isr


def configs_of(admin: "Admin", topics: Sequence[str]) -> Configs:
    """Returns the settings of topics, without those that this user may not describe."""
    from penstock.client.admin import AdminError, ConfigResource, ConfigResourceType

    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    if not resources:
        return {}
    try:
        configs = admin.describe_configs(resources)
    except AdminError as error:
        configs = error.results
    return {resource.name: settings for resource, settings in configs.items()}


def overrides_of(settings: "Mapping[str, ConfigEntry]") -> dict[str, str | None]:
    """Returns the settings that were set for the topic itself."""
    return {name: setting.value for name, setting in sorted(settings.items()) if setting.is_dynamic}


def print_descriptions(
    out: Output,
    topics: "Sequence[TopicDescription]",
    configs: Configs,
    *,
    need: PartitionFilter | None = None,
    only_overrides: bool = False,
) -> None:
    """Prints topics with their partitions; with `need`, one table of the partitions that match."""
    chosen: list[tuple[TopicDescription, list[PartitionDescription]]] = []
    for topic in topics:
        settings = configs.get(topic.name, {})
        if only_overrides and not overrides_of(settings):
            continue
        least = settings.get("min.insync.replicas")
        min_isr = int(least.value or 1) if least is not None else 1
        partitions = [
            partition
            for partition in topic.partitions
            if need is None or need.matches(partition, min_isr)
        ]
        if partitions or need is None:
            chosen.append((topic, partitions))
    if out.as_json:
        out.document(
            [
                _document(topic, partitions, overrides_of(configs.get(topic.name, {})))
                for topic, partitions in chosen
            ]
        )
        return
    if need is not None:
        out.table(
            ["Topic", *COLUMNS],
            [(topic.name, *_row(partition)) for topic, some in chosen for partition in some],
            empty=f"no partition is {need.value}",
        )
        return
    if not chosen:
        out.note("there are no such topics")
    for number, (topic, partitions) in enumerate(chosen):
        if number:
            out.line("")
        out.fields(_head(topic, overrides_of(configs.get(topic.name, {}))))
        out.table(COLUMNS, map(_row, partitions))


def _head(topic: "TopicDescription", overrides: Mapping[str, str | None]) -> dict[str, object]:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return {
        "Topic": topic.name + (" (internal)" if topic.is_internal else ""),
        "Topic id": topic.topic_id,
        "Partitions": f"{len(topic.partitions)}, {count_of(replicas, 'replica')} each",
        "Settings": ", ".join(f"{name}={value}" for name, value in overrides.items()) or None,
    }


def _row(partition: "PartitionDescription") -> tuple[object, ...]:
    leader: object = partition.leader
    if leader is None:
        leader = Marked("none", "bold red")
    isr: object = partition.isr
    if len(partition.isr) < len(partition.replicas):
        isr = Marked(partition.isr, "yellow")
    return (
        partition.partition,
        leader,
        partition.replicas,
        isr,
        partition.eligible_leader_replicas,
        partition.last_known_eligible_leader_replicas,
    )


def _document(
    topic: "TopicDescription",
    partitions: "Sequence[PartitionDescription]",
    overrides: Mapping[str, str | None],
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "configs": overrides,
        "partitions": partitions,
    }

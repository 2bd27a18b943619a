"""`penstock cluster adopt`: what a broker will make of log directories without metadata."""

from typing import TYPE_CHECKING

from penstock.cli.admin.node_options import NodeOptions
from penstock.cli.options import flag, option
from penstock.cli.output import Marked, UsageError
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.broker.offline.adoption import Survey


def adopt(
    session: Session,
    node: NodeOptions,
    topic_config: list[str] | None = option(
        "--topic-config",
        metavar="TOPIC:KEY=VALUE",
        help="A setting of a topic whose settings are unknown. May be repeated.",
    ),
    apply: bool = flag("--apply", help="Store the settings of --topic-config."),
) -> None:
    """Show which topics the log directories of a stopped node have, and with which settings.

    They come from the metadata log of a Kafka node in KRaft mode, or are not
    known. Nothing is written without --apply.
    """
    from penstock.broker.offline.adoption import confirm, survey
    from penstock.broker.offline.log_dirs import locked_nodes

    settings = parse_topic_configs(topic_config or [])
    if apply and not settings:
        raise UsageError("name settings to store: --topic-config TOPIC:KEY=VALUE")
    config = node.config()
    with locked_nodes(config) as nodes:
        found = survey(config, nodes, settings)
        if apply:
            confirm(config, settings)
    _print_survey(session, found, apply)


def parse_topic_configs(options: list[str]) -> dict[str, dict[str, str]]:
    """Returns the settings of `TOPIC:KEY=VALUE` options by topic."""
    settings: dict[str, dict[str, str]] = {}
    for text in options:
        topic, colon, setting = text.partition(":")
        name, equals, value = setting.partition("=")
        if not (topic and colon and name and equals):
            raise UsageError(
                "it must be TOPIC:KEY=VALUE, such as orders:cleanup.policy=compact",
                subject=f"--topic-config {text}",
            )
        settings.setdefault(topic, {})[name] = value
    return settings


def _print_survey(session: Session, found: "Survey", is_applied: bool) -> None:
    from penstock.broker.offline.adoption import SettingsSource

    session.out.table(
        ["Topic", "Partitions", "Logs", "Size", "Settings from", "Cleanup policy"],
        [
            (
                topic.topic,
                topic.partitions,
                topic.logs,
                topic.size,
                Marked(topic.source.value, "red")
                if topic.source in (SettingsSource.UNKNOWN, SettingsSource.STRAY)
                else topic.source.value,
                topic.settings.get("cleanup.policy", "default") or "nothing is deleted",
            )
            for topic in found.topics
        ],
        document={
            "topics": [
                topic._asdict() | {"source": topic.source.name.lower()} for topic in found.topics
            ],
            "acls": found.acls,
            "users_and_quotas": found.users_and_quotas,
            "is_known": found.is_known,
            "other_nodes": found.other_nodes,
            "applied": is_applied,
        },
        empty="the log directories have no topics",
    )
    if found.is_known:
        session.out.note("penstock: the metadata store has topics: nothing will be adopted")
    elif found.acls or found.users_and_quotas:
        session.out.note(
            f"penstock: Kafka's metadata log has {found.acls} ACLs, and settings of "
            f"{found.users_and_quotas} users and clients: they will be taken over"
        )
    if found.other_nodes and not found.is_known:
        count = max(found.other_nodes) + 1 - found.first_node
        session.out.note(
            f"penstock: start all brokers together: penstock serve --brokers {count}; each "
            "partition is led by the replica that has everything that was committed"
        )
    if is_applied:
        session.out.note("penstock: the settings are stored; start the broker")

"""`penstock cluster export`: log directories that Kafka's own broker serves."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.admin.node_options import NodeOptions
from penstock.cli.options import flag, option
from penstock.cli.output import UsageError
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.broker.kraft.export import KafkaExport


class Target(StrEnum):
    KAFKA = "kafka"


def export(
    session: Session,
    node: NodeOptions,
    to: Target | None = option("--to", help="The system that will serve the directories."),
    output: list[Path] | None = option(
        "--output",
        "-o",
        metavar="DIR",
        help="A new directory; one for each directory of log.dirs, in their order.",
    ),
    link: bool = flag(
        "--link",
        help="Make hard links of old segments instead of copies. Then only one of the two may be "
        "started again.",
    ),
    dry_run: bool = flag("--dry-run", help="Show what would be left out, and write nothing."),
) -> None:
    """Copy the log directories of stopped brokers so that Kafka 4 serves them.

    Everything in them is taken along: records, groups, transactions,
    settings, ACLs, users and quotas. The originals are not changed.
    """
    from penstock.broker.kraft.export import KafkaExport
    from penstock.broker.offline.log_dirs import locked_nodes
    from penstock.broker.offline.stopped_store import existing_store, load_image, require_stopped

    if to is None or not output:
        raise UsageError("name the target and a new directory: --to kafka --output DIR")
    config = node.config()
    with locked_nodes(config) as nodes, existing_store(config) as store:
        image = load_image(store)
        require_stopped(image)
        plan = KafkaExport(image, nodes, output, now_ms=int(time.time() * 1000))
        for omission in plan.omissions:
            session.out.note(f"penstock: left out: {omission}")
        total = sum(file.stat().st_size for path in plan.logs for file in path.glob("*.log"))
        if not dry_run:
            with session.out.progress("copying", total) as copied:
                plan.run(link=link, copied=copied)
    _print_result(session, plan, total, dry_run)


def _print_result(session: Session, plan: "KafkaExport", total: int, dry_run: bool) -> None:
    verb = "would be" if dry_run else "were"
    nodes = {
        node_id: {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(f"{voter}@HOST:9093" for voter in plan.voters),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(map(str, paths)),
        }
        for node_id, paths in plan.log_dirs.items()
    }
    lines = [
        f"{plan.topics} topics, {len(plan.logs)} logs and {total} bytes of records {verb} exported",
        "Kafka needs these settings, beside your own and a listener CONTROLLER://:9093:",
    ]
    for settings in nodes.values():
        lines += ["", *(f"{name}={value}" for name, value in settings.items())]
    session.out.done(
        lines,
        {
            "topics": plan.topics,
            "logs": len(plan.logs),
            "bytes": total,
            "exported": not dry_run,
            "left_out": plan.omissions,
            "nodes": nodes,
        },
    )

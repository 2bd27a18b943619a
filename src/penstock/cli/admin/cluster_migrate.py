"""`penstock cluster migrate`: metadata moves to ZooKeeper, so that one node becomes a cluster."""

from penstock.cli.admin.node_options import NodeOptions
from penstock.cli.options import option
from penstock.cli.output import UsageError
from penstock.cli.session import YES, Session


def migrate(
    session: Session,
    node: NodeOptions,
    to: str | None = option(
        "--to", metavar="HOST:PORT,…/CHROOT", help="The new zookeeper.connect of the brokers."
    ),
    yes: bool = YES,
) -> None:
    """Move the metadata of a stopped node to ZooKeeper, so that other brokers can join.

    Everything is kept: topics with their ids, settings, ACLs, users, quotas,
    feature levels and producer ids. The chroot must be empty or new.
    """
    from penstock.broker.config.component_config import has_own_store
    from penstock.broker.offline.metadata_transfer import move_metadata
    from penstock.controller.metadata import TopicRecord

    if not to:
        raise UsageError("name the ensemble: --to HOST:PORT/CHROOT")
    source, target = node.config("zookeeper.connect="), node.config(f"zookeeper.connect={to}")
    if not has_own_store(node.config()):
        raise UsageError("the metadata is in ZooKeeper already", subject="zookeeper.connect")
    session.confirm(f"Move the metadata to {to}?", yes=yes)
    records = move_metadata(source, target)
    topics = sum(isinstance(record, TopicRecord) for record in records)
    session.out.done(
        [
            f"the metadata of {topics} topics is in ZooKeeper; start the broker with",
            f"zookeeper.connect={to}",
        ],
        {"zookeeper_connect": to, "topics": topics, "nodes": len(records)},
    )

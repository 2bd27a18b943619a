"""`penstock cluster restore`: an empty metadata store is filled from a backup."""

from pathlib import Path

from penstock.cli.admin.node_options import NodeOptions
from penstock.cli.options import argument
from penstock.cli.output import UsageError
from penstock.cli.session import Session


def restore(
    session: Session,
    *,
    file: Path = argument("FILE", help="A file that `penstock cluster backup` has written."),
    node: NodeOptions,
) -> None:
    """Fill an empty metadata store from a backup, before the first broker starts.

    The settings of the broker select the store: ZooKeeper if
    zookeeper.connect is set, otherwise the one in log.dirs.
    """
    from penstock.broker.offline.metadata_transfer import write_metadata
    from penstock.cluster.metadata_file import decode_backup
    from penstock.controller.metadata import TopicRecord

    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", subject=str(file)) from None
    saved = decode_backup(data, str(file))
    write_metadata(node.config(), saved.records, is_current=False)
    topics = sum(isinstance(record, TopicRecord) for record in saved.records)
    session.out.done(
        f"cluster {saved.cluster_id} has its metadata of {topics} topics again; start its brokers",
        {"cluster_id": saved.cluster_id, "topics": topics, "created_ms": saved.created_ms},
    )

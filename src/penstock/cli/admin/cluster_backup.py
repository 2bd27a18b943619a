"""`penstock cluster backup`: all metadata of a cluster in one file."""

import time
from pathlib import Path

from penstock.cli.admin.node_options import NodeOptions
from penstock.cli.options import argument
from penstock.cli.session import Session


def backup(
    session: Session,
    *,
    file: Path = argument("FILE", help="The new file."),
    node: NodeOptions,
) -> None:
    """Write all metadata of a cluster to a file; brokers may be running.

    It has topics with their ids and replicas, settings, ACLs, users with the
    keys of their passwords, quotas, feature levels and producer ids. It has
    no records. Only its owner can read the file.
    """
    from penstock.broker.offline.file_copies import write_file
    from penstock.broker.offline.metadata_transfer import read_metadata
    from penstock.cluster.metadata_file import encode_backup
    from penstock.controller.metadata import TopicRecord

    records = read_metadata(node.config())
    write_file(file, [encode_backup(records, int(time.time() * 1000))])
    topics = sum(isinstance(record, TopicRecord) for record in records)
    session.out.done(
        f"the metadata of {topics} topics is in {file}; keep it secret, it has the keys of users",
        {"file": str(file), "topics": topics, "nodes": len(records)},
    )

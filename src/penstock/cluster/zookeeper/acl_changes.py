"""ACLs of the nodes of an existing cluster: closed to strangers, or opened again (X3).

As Kafka's `zookeeper-security-migration.sh` does it. Brokers may run meanwhile.
"""

from typing import Final

from penstock.cluster.store import SessionState
from penstock.cluster.zookeeper.config import ZooKeeperConfig
from penstock.cluster.zookeeper.layout import acls_of
from penstock.cluster.zookeeper.requests import SetAcls
from penstock.cluster.zookeeper.session import ZooKeeperSession

_ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended",
    "/kafka-acl-extended-changes",
    "/migration",
    "/feature",
    "/penstock",
)
"""The subtrees that Kafka closes, and that of Penstock. `/consumers` stays open."""


def change_acls(config: ZooKeeperConfig) -> int:
    """Gives every node of the cluster the ACLs that `config.is_secure` requires.

    Returns the number of nodes. Raises a KafkaError if ZooKeeper cannot be reached, or refuses a
    change; the nodes before have their new ACLs then, and a second call continues.
    """
    session = ZooKeeperSession(config, _NoStore())
    session.open()
    try:
        count = int(_change(session, "/", config.is_secure))
        level = [root for root in _ROOTS if session.read_nodes([root])[0][0] is not None]
        while level:
            count += sum(_change(session, path, config.is_secure) for path in level)
            level = [
                f"{parent}/{name}"
                for parent, names in zip(level, session.list_children(level), strict=True)
                for name in names
            ]
        return count
    finally:
        session.close()


def _change(session: ZooKeeperSession, path: str, is_secure: bool) -> bool:
    """Returns whether the node exists; others may have deleted it."""
    try:
        session.request(SetAcls(session.full_path(path), acls_of(path, is_secure)))
    except FileNotFoundError:
        return False
    return True


class _NoStore:
    """The owner of a session that has no watches."""

    def on_event(self, path: str) -> None:
        """Never called: there are no watches."""

    def on_interrupted(self, is_expired: bool) -> None:
        """Requests fail then; the caller is told."""

    def restore(self) -> None:
        """There is nothing to restore."""

    def on_state(self, state: SessionState) -> None:
        """The session logs it."""

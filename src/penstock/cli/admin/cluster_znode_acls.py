"""`penstock cluster znode-acls`: closes the znodes of a cluster to strangers, or opens them."""

from penstock.cli.admin.node_options import NodeOptions
from penstock.cli.options import option
from penstock.cli.output import UsageError
from penstock.cli.session import YES, Session


def znode_acls(
    session: Session,
    node: NodeOptions,
    to: str | None = option(
        "--to", metavar="secure|unsecure", help="Closed to strangers, or open for everybody."
    ),
    yes: bool = YES,
) -> None:
    """Set the ACLs of all znodes of a cluster: zookeeper-security-migration.sh.

    Logs in to ZooKeeper with the settings of the broker. Brokers may run meanwhile; before
    'secure' all of them must log in, and after it they need zookeeper.set.acl=true.
    """
    from penstock.broker.config.component_config import has_own_store, store_config
    from penstock.cluster.zookeeper.acl_changes import change_acls

    if to not in ("secure", "unsecure"):
        raise UsageError("say which ACLs: --to secure or --to unsecure")
    is_secure = to == "secure"
    config = node.config(f"zookeeper.set.acl={str(is_secure).lower()}")
    zookeeper = store_config(config).zookeeper
    if has_own_store(config) or zookeeper is None:
        raise UsageError("the metadata is not in ZooKeeper", subject="zookeeper.connect")
    address = f"{zookeeper.hosts}{zookeeper.chroot}"
    session.confirm(f"Make the znodes of {address} {to}?", yes=yes)
    count = change_acls(zookeeper)
    state = "closed to strangers" if is_secure else "open for everybody"
    session.out.done(
        f"{count} znodes of {address} are {state}", {"acls": to, "znodes": count, "at": address}
    )

"""`penstock cluster`: status, brokers, the versions that they serve, features, the quorum.

The commands with an implementation of their own (status, rebalance, backup …) are in `cluster_*`.

Stands for kafka-cluster.sh, kafka-broker-api-versions.sh, kafka-features.sh and
kafka-metadata-quorum.sh.
"""

from penstock.cli.admin import (
    cluster_adopt,
    cluster_backup,
    cluster_export,
    cluster_migrate,
    cluster_rebalance,
    cluster_restore,
    cluster_status,
    cluster_up,
    cluster_znode_acls,
)
from penstock.cli.app import new_group
from penstock.cli.names import key_values
from penstock.cli.options import argument, flag, option
from penstock.cli.output import Marked, UsageError, moment
from penstock.cli.session import DRY_RUN, YES, Session, command, describe_error

app = new_group(
    "Clusters: run one, status, rebalance, backup, move to and from Kafka, features, versions."
)
app.command("up")(cluster_up.up)
command(app, "status")(cluster_status.status)
command(app, "rebalance")(cluster_rebalance.rebalance)
command(app, "adopt", connects=False)(cluster_adopt.adopt)
command(app, "export", connects=False)(cluster_export.export)
command(app, "backup", connects=False)(cluster_backup.backup)
command(app, "restore", connects=False)(cluster_restore.restore)
command(app, "migrate", connects=False)(cluster_migrate.migrate)
command(app, "znode-acls", connects=False)(cluster_znode_acls.znode_acls)

FEATURES = option("--feature", "-f", metavar="NAME=LEVEL", help="May be repeated.")


@command(app, "describe")
def describe(
    session: Session,
    fenced: bool = flag("--include-fenced-brokers", help="Include brokers that are not up."),
) -> None:
    """Show the cluster's id, its controller and its brokers."""
    with session.admin() as admin:
        cluster = admin.describe_cluster(include_fenced_brokers=fenced)
    out = session.out
    if not out.as_json:
        out.fields({"Cluster id": cluster.cluster_id, "Controller": cluster.controller})
    out.table(
        ["Broker", "Host", "Port", "Rack", "Controller", "State"],
        [
            (
                *(node.id, node.host, node.port, node.rack),
                node == cluster.controller,
                Marked("fenced", "red") if node.id in cluster.fenced else Marked("up", "green"),
            )
            for node in sorted(cluster.nodes)
        ],
        document={
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller,
            "brokers": [
                node._asdict() | {"fenced": node.id in cluster.fenced}
                for node in sorted(cluster.nodes)
            ],
        },
    )


@command(app, "versions")
def versions(
    session: Session,
    broker: list[int] | None = option("--broker", help="Only this broker; may be repeated."),
) -> None:
    """Show the versions of each API that brokers serve: kafka-broker-api-versions.sh."""
    with session.admin() as admin:
        served = admin.api_versions(broker or None)
    rows = []
    for number, value in sorted(served.items()):
        if value.error is not None:
            session.out.note(f"penstock: {value.node}: {describe_error(value.error)}")
        for api in value.apis:
            used = Marked("none", "red") if api.usable is None else api.usable
            rows.append((number, api.api_key, api.name, api.min_version, api.max_version, used))
    session.out.table(
        ["Broker", "Key", "Api", "Min", "Max", "Used"],
        rows,
        document=[
            {
                "broker": number,
                "host": node_versions.node.host,
                "port": node_versions.node.port,
            }
            | {"error": node_versions.error, "apis": node_versions.apis}
            for number, node_versions in sorted(served.items())
        ],
    )


@command(app, "features")
def features(
    session: Session,
    node: int | None = option("--node", help="Query this broker."),
) -> None:
    """Show feature levels: the finalized ones, and those that the broker supports."""
    with session.admin() as admin:
        feature_set = admin.describe_features(node_id=node)
    rows = []
    for name in sorted({*feature_set.supported, *feature_set.finalized}):
        low, high = feature_set.supported.get(name, (None, None))
        level = feature_set.finalized[name].max_version if name in feature_set.finalized else 0
        rows.append((name, low, high, level, feature_set.finalized_epoch))
    session.out.table(
        ["Feature", "Supported min", "Supported max", "Finalized level", "Epoch"],
        rows,
        empty="the broker has no features",
    )


@command(app, "upgrade")
def upgrade(
    session: Session,
    feature: list[str] | None = FEATURES,
    latest: bool = flag("--latest", help="All features as far as every broker supports them."),
    dry_run: bool = DRY_RUN,
) -> None:
    """Raise feature levels: kafka-features.sh upgrade."""
    from penstock.client.admin import FeatureUpdate

    if bool(feature) == latest:
        raise UsageError("name what to upgrade: --feature NAME=LEVEL or --latest")
    with session.admin() as admin:
        if latest:
            nodes = admin.describe_cluster().nodes
            described = [admin.describe_features(node_id=node.id) for node in nodes]
            highest = {
                name: min(
                    feature_set.supported[name].max_version if name in feature_set.supported else 0
                    for feature_set in described
                )
                for name in described[0].supported
            }
            done = described[0].finalized
            levels = {
                name: level
                for name, level in highest.items()
                if level > (done[name].max_version if name in done else 0)
            }
        else:
            levels = _levels(feature or [])
        if levels:
            updates = {name: FeatureUpdate(level) for name, level in levels.items()}
            admin.update_features(updates, validate_only=dry_run)
    _print_levels(session, levels, dry_run)


@command(app, "downgrade")
def downgrade(
    session: Session,
    feature: list[str] | None = FEATURES,
    unsafe: bool = flag("--unsafe", help="Even if metadata of newer levels is lost."),
    dry_run: bool = DRY_RUN,
    yes: bool = YES,
) -> None:
    """Lower feature levels; NAME=0 disables a feature: kafka-features.sh downgrade, disable."""
    from penstock.client.admin import FeatureUpdate, UpgradeType

    if not feature:
        raise UsageError("name what to downgrade: --feature NAME=LEVEL")
    levels = _levels(feature)
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    if not dry_run:
        session.confirm(f"Downgrade {', '.join(feature)}?", yes=yes)
    with session.admin() as admin:
        updates = {name: FeatureUpdate(level, kind) for name, level in levels.items()}
        admin.update_features(updates, validate_only=dry_run)
    _print_levels(session, levels, dry_run)


@command(app, "quorum")
def quorum(session: Session) -> None:
    """Show the KRaft quorum that stores the metadata: kafka-metadata-quorum.sh."""
    with session.admin() as admin:
        quorum_info = admin.describe_quorum()
    if not session.out.as_json:
        session.out.fields(
            {
                "Leader": quorum_info.leader_id,
                "Leader epoch": quorum_info.leader_epoch,
                "High watermark": quorum_info.high_watermark,
            }
        )
    rows = []
    for role, replicas in (("follower", quorum_info.voters), ("observer", quorum_info.observers)):
        for replica in replicas:
            last = replica.last_caught_up_timestamp
            rows.append(
                (
                    replica.replica_id,
                    "leader" if replica.replica_id == quorum_info.leader_id else role,
                    replica.log_end_offset,
                    quorum_info.high_watermark - replica.log_end_offset,
                    None if last is None else moment(last),
                    replica.directory_id,
                )
            )
    session.out.table(
        ["Node", "Role", "Log end offset", "Lag", "Last caught up", "Directory"],
        rows,
        document=quorum_info,
    )


@command(app, "unregister")
def unregister(
    session: Session,
    broker: int = argument("BROKER", help="The id of a broker."),
    yes: bool = YES,
) -> None:
    """Unregister a broker that is permanently gone: kafka-cluster.sh unregister."""
    session.confirm(f"Unregister broker {broker}?", yes=yes)
    with session.admin() as admin:
        admin.unregister_broker(broker)
    session.out.done(
        f"broker {broker} is not registered any more", {"broker": broker, "unregistered": True}
    )


def _levels(options: list[str]) -> dict[str, int]:
    levels = {}
    for name, text in key_values(options, "--feature").items():
        if not text.isdecimal():
            raise UsageError("the level must be a whole number", subject=f"--feature {name}={text}")
        levels[name] = int(text)
    return levels


def _print_levels(session: Session, levels: dict[str, int], dry_run: bool) -> None:
    session.out.table(
        ["Feature", "Level", "Updated"],
        [(name, level, not dry_run) for name, level in levels.items()],
        empty="nothing to change: all features are at their newest level",
    )

"""Finds all records of a scope in the tree."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.cluster.paths import key_of
from penstock.cluster.store import Scope

ListChildren = Callable[[Sequence[str]], list[list[str]]]
"""Returns the names of the children of each path."""

_SINGLE_PATHS: Final = (
    "/cluster/id",
    "/penstock/login_secret",
    "/controller",
    "/controller_epoch",
    "/feature",
    "/latest_producer_id_block",
)
_SETTINGS_PARENTS: Final = tuple(
    f"/config/{kind}"
    for kind in ("topics", "brokers", "clients", "users", "ips", "groups", "client-metrics")
)
_TOKENS: Final = "/delegation_token/tokens"
_ACL_ROOTS: Final = ("/kafka-acl", "/kafka-acl-extended")
_CONTROLLER_PATHS: Final = ("/admin/reassign_partitions", "/admin/preferred_replica_election")
_CONTROLLER_PARENTS: Final = (
    "/brokers/ids",
    "/brokers/topics",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/log_dir_event_notification",
)


def find_paths(scope: Scope, list_children: ListChildren) -> list[str]:
    """Returns the paths at which records of this scope are, or may be: some may not exist."""
    parents = [*_SETTINGS_PARENTS, _TOKENS]
    paths = [*_SINGLE_PATHS]
    if scope is Scope.ALL:
        parents += _CONTROLLER_PARENTS
        paths += _CONTROLLER_PATHS
    nodes = _children(parents, list_children)
    paths += nodes
    inner = [f"{path}/clients" for path in nodes if path.startswith("/config/users/")]
    inner += [f"{path}/partitions" for path in nodes if path.startswith("/brokers/topics/")]
    for path in _children(inner, list_children):
        paths.append(f"{path}/state" if path.startswith("/brokers/topics/") else path)
    # Names in ACLs may contain slashes, so that there may be nodes below nodes.
    level = list(_ACL_ROOTS)
    while level:
        level = _children(level, list_children)
        paths += level
    return [path for path in paths if key_of(path) is not None]


def _children(parents: Sequence[str], list_children: ListChildren) -> list[str]:
    return [
        f"{parent}/{name}"
        for parent, names in zip(parents, list_children(parents), strict=True)
        for name in names
    ]


def chunks(paths: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]

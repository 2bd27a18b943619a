"""Finds the coordinators of groups and transactional ids."""

from collections.abc import Sequence
from enum import IntEnum
from functools import partial

from penstock.client.errors import error_of
from penstock.core.errors import ErrorCode
from penstock.net.client.cluster import Node
from penstock.net.client.network_client import NetworkClient
from penstock.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


class CoordinatorKind(IntEnum):
    """What a coordinator is for. The numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Looks up coordinators and caches them until `forget`."""

    def __init__(self, network: NetworkClient) -> None:
        self._network = network
        self._node_ids: dict[tuple[CoordinatorKind, str], int] = {}

    async def find(self, kind: CoordinatorKind, key: str, deadline_ms: int) -> int:
        """Returns the coordinator's node id; retries until the deadline if there is none yet.

        Raises AuthorizationError when an ACL for the group or transactional id is missing (E3).
        """
        cached = self._node_ids.get((kind, key))
        if cached is not None:
            return cached
        node_id = await self._network.retry(deadline_ms, lambda: self._look_up(kind, key))
        self._node_ids[kind, key] = node_id
        return node_id

    def cached(self, kind: CoordinatorKind, key: str) -> int | None:
        return self._node_ids.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str, node_id: int | None = None) -> None:
        """Looks it up again next time, because it has moved or cannot be reached.

        With `node_id`, only if that is the cached one.
        """
        if node_id is None or self._node_ids.get((kind, key)) == node_id:
            self._node_ids.pop((kind, key), None)

    async def _look_up(self, kind: CoordinatorKind, key: str) -> int:
        network = self._network
        response = await network.request(
            network.least_loaded_node(),
            partial(find_coordinators_request, kind, [key]),
            FindCoordinatorResponse,
            min_version=1 if kind is CoordinatorKind.TRANSACTION else 0,
        )
        coordinator = coordinators_of(response, key)[0]
        code = coordinator.error_code
        if code:
            raise error_of(code, _error_message(kind, key, code, coordinator.error_message))
        network.add_node(Node(coordinator.node_id, coordinator.host, coordinator.port))
        return coordinator.node_id


def find_coordinators_request(
    kind: CoordinatorKind, keys: Sequence[str], version: int
) -> FindCoordinatorRequest:
    """Returns the request for all keys; before version 4 (Kafka 3.0) for the first of them."""
    if version >= 4:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
    return FindCoordinatorRequest(key_type=kind if version else 0, key=keys[0])


def coordinators_of(response: FindCoordinatorResponse, first_key: str) -> list[Coordinator]:
    """Returns the coordinators in a response of any version to a request for these keys."""
    return response.coordinators or [
        Coordinator(
            first_key,
            response.node_id,
            response.host,
            response.port,
            response.error_code,
            response.error_message,
        )
    ]


def _error_message(kind: CoordinatorKind, key: str, code: int, message: str | None) -> str:
    subject = "group" if kind is CoordinatorKind.GROUP else "transactional id"
    if code in (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return f"this client may not use {subject} {key}: its user needs an ACL for it"
    return f"{subject} {key} has no coordinator" + (f": {message}" if message else " yet")

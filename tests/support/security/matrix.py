"""Sends the requests of the matrix to a broker, as every principal."""

from collections.abc import Container
from contextlib import ExitStack
from types import TracebackType
from typing import Self, cast

from penstock.broker.handlers.table import HANDLERS
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Message
from penstock.protocol.frames import decode_response, encode_request
from tests.support.broker.in_process import WireClient
from tests.support.broker.logins import plain_login
from tests.support.security.case import Case
from tests.support.security.outcomes import CLOSED, outcome_of
from tests.support.security.principals import (
    NO_LOGIN,
    PRINCIPALS,
    SUPER_USER,
    Principal,
    jaas_config,
)
from tests.support.security.world import NODE_ID, SECRET_NAMES, create_world

SETTINGS = {
    "node.id": NODE_ID,
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "connection.failed.authentication.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{SUPER_USER.user};User:ANONYMOUS",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""The settings that both brokers have; brokers log in to the controller without a name."""
TOKEN_SETTINGS = {"delegation.token.secret.key": "matrix-secret"}


def listener_settings(listener: str) -> dict[str, str]:
    """Returns the settings of the listener with the users, whose protocol is SASL_PLAINTEXT."""
    return {f"listener.name.{listener.lower()}.plain.sasl.jaas.config": jaas_config()}


def penstock_settings() -> dict[str, str]:
    """Returns the settings of a broker of ours."""
    return {
        **SETTINGS,
        **(TOKEN_SETTINGS if ApiKey.CREATE_DELEGATION_TOKEN in HANDLERS else {}),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        **listener_settings("SASL_PLAINTEXT"),
    }


class Matrix:
    """A broker with the world of the matrix, and a connection of each principal to it.

    A context manager: the connections are closed at the end.
    """

    def __init__(self, address: tuple[str, int], apis: Container[ApiKey]) -> None:
        """`apis` are those that the broker serves."""
        self._address = address
        self.leaks: list[str] = []
        """Names of resources that responses have in other places than outcomes show, such as error
        messages, and that the client had not sent."""
        self._clients: dict[Principal, WireClient] = {}
        with ExitStack() as stack:
            self._admin = stack.enter_context(self._connect(SUPER_USER))
            self.world = create_world(self._admin, apis)
            for principal in PRINCIPALS:
                self._clients[principal] = stack.enter_context(self._connect(principal))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def outcomes(self, case: Case, version: int) -> dict[str, str]:
        """Returns the outcome of a request for each principal, by its title."""
        result = {NO_LOGIN: self._outcome_on_new_connection(case, version, None)}
        if case.on_new_connection:
            for principal in PRINCIPALS:
                outcome = self._outcome_on_new_connection(case, version, principal)
                result[principal.title] = outcome
        elif case.one_by_one or case.restore is not None:
            for principal in PRINCIPALS:
                request = case.build(self.world, version)
                self._clients[principal].send(request, version)
                result[principal.title] = self._receive(principal, request, version)
                if case.restore is not None:
                    case.restore(self._admin, self.world)
        else:
            request = case.build(self.world, version)
            for principal in PRINCIPALS:
                self._clients[principal].send(request, version)
            for principal in PRINCIPALS:
                result[principal.title] = self._receive(principal, request, version)
        return result

    def _outcome_on_new_connection(
        self, case: Case, version: int, principal: Principal | None
    ) -> str:
        with WireClient(self._address) if principal is None else self._connect(principal) as client:
            request = case.build(self.world, version)
            client.send(request, version)
            try:
                frame = client.receive_frame()
            except ConnectionError:
                return CLOSED
            return self._outcome(request, version, frame, principal)

    def _receive(self, principal: Principal, request: Message, version: int) -> str:
        try:
            frame = self._clients[principal].receive_frame()
        except ConnectionError:
            self._clients[principal] = self._stack.enter_context(self._connect(principal))
            return CLOSED
        return self._outcome(request, version, frame, principal)

    def _outcome(
        self, request: Message, version: int, frame: bytes, principal: Principal | None
    ) -> str:
        key = type(request).INFO.key
        assert key is not None
        _, response = decode_response(api(key).response, version, frame)
        user = "" if principal is None else principal.user
        outcome = outcome_of(response, version, self.world.topics, user)
        sent = b"".join(cast("list[bytes]", encode_request(request, version, 0, "")))
        for name in SECRET_NAMES if principal is not SUPER_USER else ():
            if (
                name.encode() in frame
                and name.encode() not in sent
                and name not in outcome.replace(f"#{name}", "")
            ):
                self.leaks.append(f"{ApiKey(key).name} v{version}, {user}: the name {name}")
        return outcome

    def _connect(self, principal: Principal) -> WireClient:
        client = WireClient(self._address)
        response = plain_login(client, principal.user)
        assert response.error_code == 0, response.error_message
        return client

"""SASL GSSAPI on the server's side: the exchange after RFC 4752, with a scripted context (X2)."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.kerberos_names import PrincipalRules
from penstock.security.sasl.gssapi import MAX_TOKEN_SIZE, GssapiServer, GssError
from penstock.security.sasl.server import ClaimsName

NO_LAYER = b"\x01\0\0\0"


class ScriptedContext:
    """Established by the token `ticket`; wraps messages in brackets."""

    def __init__(self, principal: str = "ann@REALM.COM", answer: bytes = b"ap-rep") -> None:
        self.client = principal
        self.is_established = False
        self.prepared: list[bytes] = []
        self._answer = answer

    def prepare(self, token: bytes) -> Awaitable[None]:
        async def work() -> None:
            self.prepared.append(token)

        return work()

    def accept(self, token: bytes) -> bytes:
        if token == b"more":
            return b"continue"
        if token != b"ticket":
            raise GssError("the ticket is a forgery")
        self.is_established = True
        return self._answer

    def wrap(self, message: bytes) -> bytes:
        return b"[" + message + b"]"

    def unwrap(self, message: bytes) -> bytes:
        if message[:1] + message[-1:] != b"[]":
            raise GssError("the signature is wrong")
        return message[1:-1]


def new_server(
    context: ScriptedContext | None = None, report: Callable[[str], None] = lambda reason: None
) -> GssapiServer:
    rules = PrincipalRules(["DEFAULT"], "REALM.COM")
    return GssapiServer(context or ScriptedContext(), rules, report)


def offered(server: GssapiServer) -> GssapiServer:
    """Steps to the point where the client selects a security layer."""
    assert server.step(b"ticket") == b"ap-rep"
    assert server.step(b"") == b"[" + NO_LAYER + b"]"
    assert not server.done
    return server


def refusal(server: GssapiServer, token: bytes) -> str:
    with pytest.raises(KafkaError) as raised:
        server.step(token)
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not server.done
    with pytest.raises(KafkaError) as again:
        server.step(b"ticket")
    assert again.value.code is ErrorCode.ILLEGAL_SASL_STATE
    return raised.value.message


@pytest.mark.parametrize(
    "selection",
    [
        NO_LAYER,
        b"\x01\xff\xff\xff",  # a size without a layer means nothing
        NO_LAYER + b"ann@REALM.COM",
        NO_LAYER + b"somebody-else",  # as in Kafka, the ticket decides
        NO_LAYER + b"\xff",
    ],
)
def test_the_user_is_the_principal_of_the_ticket(selection: bytes) -> None:
    server = offered(new_server())
    assert server.step(b"[" + selection + b"]") == b""
    assert server.done
    assert server.principal_name == "ann"
    assert server.expires_ms is None


def test_an_empty_last_token_is_followed_by_the_offer_at_once() -> None:
    """Without mutual authentication the server has no token for the client."""
    server = new_server(ScriptedContext(answer=b""))
    assert server.step(b"ticket") == b"[" + NO_LAYER + b"]"
    server.step(b"[" + NO_LAYER + b"]")
    assert server.done


def test_a_context_may_take_several_tokens() -> None:
    server = new_server()
    assert server.step(b"more") == b"continue"
    offered(server)


@pytest.mark.parametrize("layer", [0x00, 0x02, 0x03, 0x04])
def test_connections_have_no_security_layer(layer: int) -> None:
    message = refusal(offered(new_server()), b"[" + bytes((layer, 0, 0, 0)) + b"]")
    assert "use SASL_SSL for encryption" in message


@pytest.mark.parametrize(
    ("token", "is_offered", "reason"),
    [
        (b"forged", False, "the ticket is a forgery"),
        (b"x" * (MAX_TOKEN_SIZE + 1), False, f"a token has {MAX_TOKEN_SIZE + 1} bytes"),
        (b"[" + NO_LAYER, True, "the signature is wrong"),
        (b"[\x01\0\0]", True, "the selection of a security layer is too short"),
    ],
)
def test_only_the_broker_learns_the_reason(token: bytes, is_offered: bool, reason: str) -> None:
    reasons: list[str] = []
    server = new_server(report=reasons.append)
    message = refusal(offered(server) if is_offered else server, token)
    assert "invalid Kerberos credentials" in message
    assert reason not in message
    assert reasons == [reason]


def test_a_token_instead_of_the_empty_message_is_refused() -> None:
    server = new_server()
    server.step(b"ticket")
    assert "invalid Kerberos credentials" in refusal(server, b"ticket")


def test_a_principal_without_a_rule_is_refused() -> None:
    reasons: list[str] = []
    server = new_server(ScriptedContext("ann@OTHER"), reasons.append)
    assert server.claimed_name is None
    offered(server)
    assert isinstance(server, ClaimsName)
    assert server.claimed_name == "ann@OTHER"
    assert "have no user name for ann@OTHER" in refusal(server, b"[" + NO_LAYER + b"]")
    assert reasons[0].endswith("applies to ann@OTHER: DEFAULT")  # the client learns no rules


def test_only_tickets_are_prepared() -> None:
    context = ScriptedContext()
    server = new_server(context)
    assert server.prepare(b"x" * (MAX_TOKEN_SIZE + 1)) is None
    waiting = server.prepare(b"ticket")
    assert waiting is not None
    with pytest.raises(StopIteration):
        waiting.__await__().send(None)
    assert context.prepared == [b"ticket"]
    offered(server)
    assert server.prepare(b"[" + NO_LAYER + b"]") is None


def test_nobody_is_logged_in_before_the_end() -> None:
    with pytest.raises(KafkaError, match="nobody logged in"):
        _ = offered(new_server()).principal_name

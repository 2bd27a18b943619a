"""kafka-acls.sh, and the tools run by users with and without rights (M4, X2, X3, E3)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker.process import PenstockBroker, start_broker
from tests.support.kafka.tools import KafkaTools, Shell, ToolRun

MODULES = "org.apache.kafka.common.security"
Login = Callable[..., Shell]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockBroker]:
    """A broker with an authorizer. Its settings contain PLAIN users; tests create SCRAM users."""
    users = "".join(f' user_{name}="{name}-secret"' for name in ("admin", "bob"))
    listener = "listener.name.sasl_plaintext"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{listener}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required{users};",
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "group.initial.rebalance.delay.ms": "0",
        "connection.failed.authentication.delay.ms": "0",
    }
    with start_broker(tmp_path_factory.mktemp("secured"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def login(
    tools: KafkaTools, secured: PenstockBroker, tmp_path_factory: pytest.TempPathFactory
) -> Login:
    """Returns the tools of a user: `login("bob")`."""
    directory = tmp_path_factory.mktemp("logins")

    def make(user: str, mechanism: str = "PLAIN", password: str | None = None) -> Shell:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        configuration = directory / f"{user}-{mechanism}-{password}.properties"
        configuration.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={MODULES}.{module}LoginModule required "
            f'username="{user}" password="{password or f"{user}-secret"}";\n'
        )
        return Shell(tools, secured.bootstrap, configuration)

    return make


@pytest.fixture
def admin(login: Login) -> Shell:
    return login("admin")


@pytest.fixture
def bob(login: Login) -> Shell:
    """A user without any rights."""
    return login("bob")


@pytest.fixture
def alice(login: Login, admin: Shell, name: str) -> Iterator[Shell]:
    """A SCRAM user, created with the tools, who may write to the test's topic."""
    credential = "SCRAM-SHA-256=[iterations=4096,password=alice-secret]"
    admin("configs", "--alter", "--user", "alice", "--add-config", credential)
    grant = ("--allow-principal", "User:alice", "--producer", "--topic", name)
    admin("acls", "--add", *grant)
    yield login("alice", "SCRAM-SHA-256")
    admin("acls", "--remove", "--force", *grant)


@pytest.fixture
def topic(admin: Shell, name: str) -> str:
    admin("topics", "--create", "--topic", name, "--partitions", "1")
    return name


def _acls(run: ToolRun) -> dict[str, list[str]]:
    """Returns the ACLs that the tool lists, by resource."""
    result: dict[str, list[str]] = {}
    for line in run.lines:
        if line.startswith("Current ACLs for resource"):
            listed = result.setdefault(line.split("`")[1], [])
        elif line.startswith("(principal="):
            listed.append(line)
    return {resource: sorted(acls) for resource, acls in result.items()}


def _acl(principal: str, operation: str, host: str = "*", kind: str = "ALLOW") -> str:
    return (
        f"(principal=User:{principal}, host={host}, operation={operation}, permissionType={kind})"
    )


def _literal(topic: str) -> str:
    return f"ResourcePattern(resourceType=TOPIC, name={topic}, patternType=LITERAL)"


def test_acls_are_added_listed_and_removed(admin: Shell, topic: str) -> None:
    added = admin(
        *("acls", "--add", "--topic", topic, "--operation", "Read", "--operation", "Describe"),
        *("--allow-principal", "User:carol", "--allow-host", "127.0.0.1"),
        *("--deny-principal", "User:eve", "--deny-host", "10.0.0.1"),
    )
    assert f"Adding ACLs for resource `{_literal(topic)}`:" in added.lines
    expected = {
        _literal(topic): [
            _acl("carol", "DESCRIBE", "127.0.0.1"),
            _acl("carol", "READ", "127.0.0.1"),
            _acl("eve", "DESCRIBE", "10.0.0.1", "DENY"),
            _acl("eve", "READ", "10.0.0.1", "DENY"),
        ]
    }
    listing = ("acls", "--list", "--topic", topic)
    assert _acls(admin(*listing)) == expected
    of_carol = _acls(admin(*listing, "--principal", "User:carol"))
    assert of_carol == {_literal(topic): expected[_literal(topic)][:2]}

    denied_read = ("--topic", topic, "--operation", "Read", "--deny-principal", "User:eve")
    admin("acls", "--remove", "--force", *denied_read, "--deny-host", "10.0.0.1")
    assert _acls(admin(*listing)) == {_literal(topic): expected[_literal(topic)][:3]}
    admin("acls", "--remove", "--force", "--topic", topic)
    assert _acls(admin(*listing)) == {}


def test_acls_of_prefixes_and_other_resources(admin: Shell, name: str) -> None:
    admin(
        *("acls", "--add", "--allow-principal", "User:carol", "--consumer", "--topic", name[:-1]),
        *("--group", "*", "--resource-pattern-type", "prefixed"),
    )
    admin("acls", "--add", "--allow-principal", "User:carol", "--operation", "All", "--cluster")
    listed = _acls(admin("acls", "--list", "--principal", "User:carol"))
    prefix = f"ResourcePattern(resourceType=TOPIC, name={name[:-1]}, patternType=PREFIXED)"
    cluster = "ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL)"
    assert listed[prefix] == [_acl("carol", "DESCRIBE"), _acl("carol", "READ")]
    assert listed[cluster] == [_acl("carol", "ALL")]
    matching = ("acls", "--list", "--topic", name, "--resource-pattern-type", "match")
    assert prefix in _acls(admin(*matching))
    admin("acls", "--remove", "--force", "--cluster")
    assert cluster not in _acls(admin("acls", "--list"))


def test_a_wrong_password_fails_at_once(login: Login) -> None:
    """E3: the tool prints the reason."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        refused = login("bob", mechanism, "wrong").attempt("topics", "--list")
        assert refused.exit == 1
        assert refused.lines == [
            "Error while executing topic command : authentication failed: wrong user name or "
            f"password (SASL mechanism {mechanism})"
        ]
        assert "SaslAuthenticationException" in refused.err


def test_a_disabled_mechanism_is_an_error(login: Login) -> None:
    """E3: the error lists the enabled mechanisms."""
    refused = login("bob", "SCRAM-SHA-512").attempt("topics", "--list")
    assert refused.exit == 1
    assert "UnsupportedSaslMechanismException" in refused.err
    assert "PLAIN, SCRAM-SHA-256" in refused.text


def test_a_user_without_rights_is_denied(bob: Shell, topic: str, tmp_path: Path) -> None:
    """E3: topics are hidden from the user, and each error names the missing right."""
    assert topic not in bob("topics", "--list").lines
    hidden = bob.attempt("topics", "--describe", "--topic", topic)
    assert (hidden.exit, "does not exist as expected" in hidden.out) == (1, True)
    created = bob.attempt("topics", "--create", "--topic", "his")
    assert (created.exit, created.lines[0]) == (
        1,
        "Error while executing topic command : User:bob at 127.0.0.1 may not CREATE topic 'his': "
        "add an ACL that allows it",
    )
    listed = bob.attempt("acls", "--list")
    assert listed.exit == 1
    assert "User:bob at 127.0.0.1 may not DESCRIBE cluster 'kafka-cluster'" in listed.out
    changed = bob.attempt("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=1")
    assert f"User:bob at 127.0.0.1 may not ALTER_CONFIGS topic '{topic}'" in changed.err
    offsets = tmp_path / "delete.json"
    partition = {"topic": topic, "partition": 0, "offset": -1}
    offsets.write_text(json.dumps({"partitions": [partition], "version": 1}))
    deleted = bob("delete-records", "--offset-json-file", str(offsets))
    assert "TopicAuthorizationException" in deleted.out
    groups = bob("consumer-groups", "--describe", "--group", "g")
    assert "GroupAuthorizationException" in groups.out


def test_producing_is_denied_and_allowed(bob: Shell, alice: Shell, topic: str) -> None:
    """E3, X3."""
    denied = bob("console-producer", "--topic", topic, stdin="denied\n")
    assert f"TopicAuthorizationException: Not authorized to access topics: [{topic}]" in denied.err
    assert alice("console-producer", "--topic", topic, stdin="one\ntwo\n").text == ""
    assert alice("topics", "--list").lines == [topic]
    assert alice("get-offsets", "--topic", topic).lines == [f"{topic}:0:2"]


def test_consuming_is_denied_and_allowed(
    admin: Shell, bob: Shell, alice: Shell, topic: str
) -> None:
    """E3, X3: a consumer also needs a right to its group."""
    alice("console-producer", "--topic", topic, stdin="one\ntwo\n")
    consume = ("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2")
    grant = (
        *("--allow-principal", "User:bob", "--consumer", "--topic", topic),
        *("--group", f"{topic}-", "--resource-pattern-type", "prefixed"),
    )
    admin("acls", "--add", *grant)
    assert bob(*consume, "--group", f"{topic}-a").lines == ["one", "two"]
    denied = bob(*consume, "--group", "other")
    assert denied.lines == []
    assert "GroupAuthorizationException: Not authorized to access group: other" in denied.err
    admin("acls", "--remove", "--force", *grant)
    denied = bob(*consume, "--group", f"{topic}-a")
    assert denied.lines == []
    assert "AuthorizationException" in denied.err


def test_a_removed_user_cannot_log_in(login: Login, admin: Shell, alice: Shell) -> None:
    """X2: the next login fails without the credential."""
    assert alice("topics", "--list").exit == 0
    admin("configs", "--alter", "--user", "alice", "--delete-config", "SCRAM-SHA-256")
    assert admin("configs", "--describe", "--user", "alice").lines == []
    assert "authentication failed" in alice.attempt("topics", "--list").out


def test_acls_are_an_error_without_an_authorizer(shell: Shell) -> None:
    """X3: the error names the missing setting."""
    refused = shell.attempt("acls", "--list")
    assert refused.exit == 1
    assert "SecurityDisabledException: this broker has no authorizer" in refused.out
    assert "set authorizer.class.name=" in refused.out

"""Settings of the broker, changed while it runs, apply at once and after a restart."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.inter_broker.client import InterBrokerClient
from penstock.broker.metadata.topic_rules import election_rules
from penstock.client import Producer
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.metadata import MetadataRequest
from penstock.records.batch import read_header
from penstock.records.compress import Compression
from penstock.records.record import Record
from penstock.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from penstock.storage.log.log import Log
from tests.support.broker.absent_replicas import add_absent_replica
from tests.support.broker.certificates import Identity, make_identity, simple_name
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import PLAIN_JAAS, plain_login
from tests.support.protocol.admin import (
    BROKER,
    TOPIC,
    alter,
    create_topic,
    describe,
    fetch,
    produce,
    try_alter,
    try_produce,
)

RECORD = Record(0, 1_700_000_000_000, None, b"x" * 2000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with broker.connect() as wire_client:
        yield wire_client


def own_id(broker: RunningBroker) -> str:
    return broker.call(lambda running: str(running.broker_id))


def log_of(running: Broker, topic: str) -> Log:
    log = running.logs.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def cleaner_settings(broker: RunningBroker) -> CleanerSettings:
    def find(running: Broker) -> CleanerSettings:
        return next(
            listener.settings
            for listener in running.logs.listeners
            if isinstance(listener, LogCleaner)
        )

    return broker.call(find)


# --- defaults of topics


def test_defaults_apply_to_topics_without_their_own_value(tmp_path: Path) -> None:
    settings: dict[str, str | None] = {
        "log.retention.ms": "5000",
        "log.segment.bytes": "2000000",
        "log.roll.ms": "7000",
        "log.cleanup.policy": "compact",
        "log.flush.interval.messages": "9",
        "log.index.interval.bytes": "11",
        "log.preallocate": "true",
        "log.cleaner.delete.retention.ms": "13",
    }

    def check(running: Broker) -> None:
        plain, own = log_of(running, "plain").config, log_of(running, "own").config
        assert (plain.retention_ms, own.retention_ms) == (5000, 1)
        for config in (plain, own):
            assert config.segment_bytes == 2_000_000
            assert config.segment_ms == 7000
            assert config.cleanup_policy == {"compact"}
            assert config.flush_messages == 9
            assert config.index_interval_bytes == 11
            assert config.preallocate
            assert config.delete_retention_ms == 13

    with running_broker(tmp_path) as broker, broker.connect() as client:
        create_topic(client, "plain")
        create_topic(client, "own", {"retention.ms": "1"})
        alter(client, BROKER, "", settings)
        broker.call(check)
    with running_broker(tmp_path) as broker, broker.connect() as client:
        broker.call(check)
        alter(client, BROKER, "", dict.fromkeys(settings))
        week_ms = 7 * 24 * 3_600_000
        assert broker.call(lambda running: log_of(running, "plain").config.retention_ms) == week_ms


def test_message_max_bytes_applies_to_topics(tmp_path: Path) -> None:
    """P7."""
    with running_broker(tmp_path) as broker, broker.connect() as client:
        create_topic(client, "t")
        alter(client, BROKER, "", {"message.max.bytes": "1000"})
        assert try_produce(client, "t", RECORD).error_code == ErrorCode.MESSAGE_TOO_LARGE
        alter(client, BROKER, own_id(broker), {"message.max.bytes": "3000"})
        assert try_produce(client, "t", RECORD).error_code == 0
        alter(client, BROKER, own_id(broker), {"message.max.bytes": None})
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert try_produce(client, "t", RECORD).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_min_insync_replicas_applies_to_topics(broker: RunningBroker, client: WireClient) -> None:
    create_topic(client, "t")
    add_absent_replica(broker, "t")
    alter(client, BROKER, "", {"min.insync.replicas": "2"})
    assert try_produce(client, "t", RECORD).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    alter(client, TOPIC, "t", {"min.insync.replicas": "1"})
    assert try_produce(client, "t", RECORD).error_code == 0


def test_compression_and_timestamp_types_apply_to_topics(client: WireClient) -> None:
    create_topic(client, "t")
    alter(
        client,
        BROKER,
        "",
        {"compression.type": "zstd", "log.message.timestamp.type": "LogAppendTime"},
    )
    assert try_produce(client, "t", RECORD).log_append_time_ms > 0
    assert read_header(bytes(fetch(client, "t").records)).compression is Compression.ZSTD


def test_unclean_election_can_be_allowed_for_all_topics(
    broker: RunningBroker, client: WireClient
) -> None:
    create_topic(client, "t")
    alter(client, BROKER, "", {"unclean.leader.election.enable": "true"})
    assert broker.call(
        lambda running: election_rules(running.config, running.image).allows_unclean("t")
    )


# --- background tasks


def test_the_cleaner_applies_its_settings(tmp_path: Path) -> None:
    settings: dict[str, str | None] = {
        "log.cleaner.backoff.ms": "123",
        "log.cleaner.dedupe.buffer.size": "4000000",
        "log.cleaner.io.buffer.load.factor": "0.5",
        "log.cleaner.io.max.bytes.per.second": "1000000.0",
    }

    def check(broker: RunningBroker) -> None:
        result = cleaner_settings(broker)
        assert result.backoff_ms == 123
        assert result.dedupe_buffer_size == 4_000_000
        assert result.io_buffer_load_factor == 0.5
        assert result.io_max_bytes_per_second == 1_000_000

    with running_broker(tmp_path) as broker, broker.connect() as client:
        alter(client, BROKER, "", settings)
        check(broker)
    with running_broker(tmp_path) as broker:
        check(broker)


def test_the_expiration_of_producer_ids_applies_to_all_logs(tmp_path: Path) -> None:
    def expiration_ms(broker: RunningBroker) -> set[int]:
        return broker.call(
            lambda running: {log.producers.producer_id_expiration_ms for log in running.logs}
        )

    with running_broker(tmp_path) as broker, broker.connect() as client:
        create_topic(client, "before")
        alter(client, BROKER, "", {"producer.id.expiration.ms": "5000"})
        create_topic(client, "after")
        assert expiration_ms(broker) == {5000}
    with running_broker(tmp_path) as broker:
        assert expiration_ms(broker) == {5000}


# --- connections


def serves(client: WireClient) -> bool:
    try:
        return bool(client.request(MetadataRequest([]), 9).brokers)
    except ConnectionError:
        return False


@pytest.mark.parametrize(
    "settings",
    [{"max.connections.per.ip": "1"}, {"max.connections.per.ip.overrides": "127.0.0.1:1,::1:5"}],
)
def test_connections_per_address_are_limited(
    broker: RunningBroker, client: WireClient, settings: dict[str, str | None]
) -> None:
    with broker.connect() as second:
        assert serves(second)
        alter(client, BROKER, own_id(broker), settings)
        with broker.connect() as third:
            assert not serves(third)
        assert serves(second)  # existing connections stay open
    alter(client, BROKER, own_id(broker), dict.fromkeys(settings))
    with broker.connect() as third:
        assert serves(third)


@pytest.mark.parametrize("setting", ["max.connections", "listener.name.plaintext.max.connections"])
def test_connections_above_the_limit_wait(
    broker: RunningBroker, client: WireClient, setting: str
) -> None:
    """As in Kafka, no connection is accepted until one is closed or the limit is raised."""
    request = MetadataRequest([])
    with broker.connect() as second, broker.connect() as third:
        assert serves(second)
        assert serves(third)
        alter(client, BROKER, own_id(broker), {setting: "3"})
        with broker.connect() as fourth:
            fourth.send(request, 9)
            for _ in range(3):
                assert serves(client)
            assert broker.call(lambda _: broker.app.parts.server.admission.total) == 3
            second.close()
            assert fourth.receive_frame()
            with broker.connect() as fifth:
                fifth.send(request, 9)
                assert serves(client)
                alter(client, BROKER, own_id(broker), {setting: None})
                assert fifth.receive_frame()


def test_a_lower_limit_closes_the_connection_idle_the_longest(
    broker: RunningBroker, client: WireClient
) -> None:
    idle = broker.connect()
    with idle, broker.connect() as busy:
        assert serves(idle)
        broker.call(lambda _: broker.app.parts.server.sweep())
        assert serves(busy)
        alter(client, BROKER, own_id(broker), {"max.connections": "2"})
        assert idle.is_closed()
        assert serves(busy)
        assert serves(client)


def test_connection_limits_survive_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        alter(client, BROKER, "", {"max.connections.per.ip": "1"})
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert serves(client)
        with broker.connect() as second:
            assert not serves(second)


def test_too_large_changes_of_thread_counts_are_rejected(client: WireClient) -> None:
    """As in Kafka, thread counts can at most be halved or doubled at once."""
    code, reason = try_alter(client, BROKER, "", {"num.io.threads": "1000"})
    assert code is ErrorCode.INVALID_REQUEST
    assert reason is not None
    assert "16" in reason
    alter(client, BROKER, "", {"num.io.threads": "16", "background.threads": "20"})
    assert describe(client, BROKER, "")["num.io.threads"].value == "16"


# --- keys and users


def server_certificate(broker: RunningBroker) -> bytes:
    address = next(address for address in broker.addresses if address.listener == "SSL")
    pem = ssl.get_server_certificate((address.host, address.port))
    return ssl.PEM_cert_to_DER_cert(pem)


def store(directory: Path, name: str, identity: Identity) -> str:
    file = directory / name
    file.write_text(identity.key_pem() + identity.certificate_pem)
    return str(file)


def test_certificates_are_replaced_while_the_broker_runs(tmp_path: Path) -> None:
    first, second, third = (make_identity(simple_name("localhost")) for _ in range(3))
    setting = "listener.name.ssl.ssl.keystore.location"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        setting: store(tmp_path, "first.pem", first),
    }
    with running_broker(tmp_path, settings) as broker, broker.connect("PLAINTEXT") as client:
        name = own_id(broker)
        assert server_certificate(broker) == first.der
        path = store(tmp_path, "second.pem", second)
        alter(client, BROKER, name, {setting: path})
        assert server_certificate(broker) == second.der
        # The content of the file has changed, so setting the same path again reloads it.
        store(tmp_path, "second.pem", third)
        assert server_certificate(broker) == second.der
        alter(client, BROKER, name, {setting: path})
        assert server_certificate(broker) == third.der
        for invalid_path in (str(tmp_path / "missing.pem"), str(tmp_path / "bad.pem")):
            (tmp_path / "bad.pem").write_text("no key")
            code, reason = try_alter(client, BROKER, name, {setting: invalid_path})
            assert code is ErrorCode.INVALID_REQUEST
            assert reason is not None
            assert invalid_path in reason
        assert server_certificate(broker) == third.der
    with running_broker(tmp_path, settings) as broker:
        assert server_certificate(broker) == third.der


def test_a_certificate_with_other_names_is_refused(tmp_path: Path) -> None:
    """As in Kafka, unless ssl.allow.dn.changes and ssl.allow.san.changes are true (X2)."""
    first, other = make_identity(simple_name("localhost")), make_identity(simple_name("other"))
    fewer = make_identity(simple_name("localhost"), alternative_names=())
    setting = "listener.name.ssl.ssl.keystore.location"
    path = store(tmp_path, "key.pem", first)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        setting: path,
    }
    with running_broker(tmp_path, settings) as broker, broker.connect("PLAINTEXT") as client:
        for identity, expected in ((other, "ssl.allow.dn.changes"), (fewer, "ssl.allow.san")):
            changed = store(tmp_path, "changed.pem", identity)
            code, reason = try_alter(client, BROKER, own_id(broker), {setting: changed})
            assert code is ErrorCode.INVALID_REQUEST
            assert expected in (reason or "")
            # The same path with another content is refused, too: the file in use counts.
            store(tmp_path, "key.pem", identity)
            code, reason = try_alter(client, BROKER, own_id(broker), {setting: path})
            assert code is ErrorCode.INVALID_REQUEST
            alter(client, BROKER, own_id(broker), {"num.io.threads": "9"})
            assert server_certificate(broker) == first.der
    store(tmp_path, "key.pem", first)
    allowed = settings | {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    with running_broker(tmp_path, allowed) as broker, broker.connect("PLAINTEXT") as client:
        for identity in (other, fewer):
            alter(client, BROKER, own_id(broker), {setting: store(tmp_path, "new.pem", identity)})
            assert server_certificate(broker) == identity.der


def test_connections_survive_a_new_certificate(tmp_path: Path) -> None:
    first, second = (make_identity(simple_name("localhost")) for _ in range(2))
    setting = "listener.name.ssl.ssl.keystore.location"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        setting: store(tmp_path, "key.pem", first),
    }
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(first.certificate_pem + second.certificate_pem)
    with running_broker(tmp_path, settings) as broker, broker.connect("PLAINTEXT") as client:
        address = next(address for address in broker.addresses if address.listener == "SSL")
        with Producer(
            bootstrap_servers=f"localhost:{address.port}",
            security_protocol="SSL",
            ssl_cafile=str(trusted),
            ssl_check_hostname=False,
        ) as producer:
            assert producer.send("t", b"1").result().offset == 0
            alter(client, BROKER, own_id(broker), {setting: store(tmp_path, "key.pem", second)})
            assert server_certificate(broker) == second.der
            assert producer.send("t", b"2").result().offset == 1


def test_keys_that_other_brokers_would_not_trust_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka, and changed files are used for connections to other brokers, too (X2)."""
    reloads = []
    monkeypatch.setattr(InterBrokerClient, "reconfigure", lambda _: reloads.append(1))
    authority, other = (make_identity(simple_name(name)) for name in ("authority", "other"))
    name = simple_name("localhost")
    key = "listener.name.ssl.ssl.keystore.location"
    trust = "listener.name.ssl.ssl.truststore.location"
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.certificate_pem)
    path = store(tmp_path, "key.pem", make_identity(name, authority))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        key: path,
        trust: str(trusted),
    }
    with running_broker(tmp_path, settings) as broker, broker.connect("PLAINTEXT") as client:
        broker_id = own_id(broker)
        in_use = server_certificate(broker)
        stranger = make_identity(name, other)
        store(tmp_path, "key.pem", stranger)
        code, reason = try_alter(client, BROKER, broker_id, {key: path})
        assert code is ErrorCode.INVALID_REQUEST
        assert "would not trust each other" in (reason or "")
        assert server_certificate(broker) == in_use
        assert not reloads
        # In this order it is possible: first all brokers trust both authorities.
        store(tmp_path, "key.pem", make_identity(name, authority))
        both = tmp_path / "both.pem"
        both.write_text(authority.certificate_pem + other.certificate_pem)
        alter(client, BROKER, broker_id, {trust: str(both)})
        store(tmp_path, "key.pem", stranger)
        reloads.clear()
        alter(client, BROKER, broker_id, {trust: str(both), key: path})
        assert server_certificate(broker) == stranger.der
        store(tmp_path, "key.pem", make_identity(name, authority))
        reloads.clear()
        alter(client, BROKER, broker_id, {trust: str(both), key: path})
        assert reloads, "no setting has changed, only the file"


def test_users_are_added_while_the_broker_runs(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": PLAIN_JAAS,
    }
    with running_broker(tmp_path, settings) as broker, broker.connect("PLAINTEXT") as client:
        extended_jaas = PLAIN_JAAS.replace(";", ' user_zoe="zoe-secret";')
        alter(client, BROKER, own_id(broker), {"sasl.jaas.config": extended_jaas})
        with broker.connect("SASL_PLAINTEXT") as zoe:
            assert plain_login(zoe, "zoe").error_code == 0


def test_a_change_of_one_topic_affects_only_that_topic(client: WireClient) -> None:
    for topic in ("one", "other"):
        create_topic(client, topic)
    alter(client, TOPIC, "one", {"max.message.bytes": "1000"})
    assert try_produce(client, "one", RECORD).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(client, "other", b"x" * 2000) == 0

"""Metrics and health of a broker over HTTP, as Prometheus and people read them."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser

from penstock.broker.metrics import endpoint
from penstock.broker.metrics.exposition import Exposition, Format
from penstock.broker.metrics.health import BrokerState
from penstock.broker.metrics.replicas import OTHER_TOPICS, collect_replicas
from penstock.client import Consumer, Producer
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.metrics.scraping import Address, get, promtool, scrape
from tests.support.protocol.requests import (
    batch_of,
    fetch_request,
    make_topic,
    partitions_of,
    produce_request,
    produce_values,
)

ROOT = Path(__file__).parents[2]
REQUESTS = "kafka_network_requestmetrics"
TOPICS = "kafka_server_brokertopicmetrics"
_NAME = re.compile(r"\b(?:kafka|penstock|process)_[a-z0-9_]+")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "REUSE_S", 0.0)
        yield {
            "metrics.port": "0",
            "group.initial.rebalance.delay.ms": "0",
            "audit.log.dir": str(tmp_path_factory.mktemp("audit")),
        }


@pytest.fixture
def address(broker: RunningBroker) -> Address:
    return address_of(broker)


def address_of(broker: RunningBroker) -> Address:
    assert broker.app.metrics_address is not None
    return broker.app.metrics_address


def families_of(broker: RunningBroker) -> set[str]:
    """The names of all metrics that a broker has, those without a sample too."""
    metrics = broker.app.metrics
    assert metrics is not None
    return set(broker.wait(lambda _: metrics.collect()).families)


# --- what is measured


def test_records_and_bytes_of_topics_are_counted(client: WireClient, address: Address) -> None:
    before = scrape(address)
    topic_id = make_topic(client, "counted")
    for value in (b"a", b"bb", b"ccc"):
        produce_values(client, "counted", value)
    (data,) = partitions_of(client.request(fetch_request({topic_id: {0: 1}}), 13)).values()
    after = scrape(address)

    assert after.value(f"{TOPICS}_messagesin_total", topic="counted") == 3
    size = after.value("kafka_log_log_size", topic="counted")
    assert after.value(f"{TOPICS}_bytesin_total", topic="counted") == size > 0
    assert after.value(f"{TOPICS}_bytesout_total", topic="counted") == len(data.records)
    for name, count in (("messagesin", 3), ("bytesin", size), ("bytesout", len(data.records))):
        total = f"{TOPICS}_{name}_total"
        assert after.value(total) - before.value(total) == count


def test_a_deleted_topic_stays_in_the_totals(client: WireClient, address: Address) -> None:
    make_topic(client, "passing")
    produce_values(client, "passing", b"a")
    before = scrape(address)
    client.request(DeleteTopicsRequest(topic_names=["passing"]), 5)
    after = scrape(address)
    assert "passing" not in after.labels(f"{TOPICS}_messagesin_total", "topic")
    assert after.value(f"{TOPICS}_messagesin_total") == before.value(f"{TOPICS}_messagesin_total")


def test_requests_are_counted_and_measured_by_phase(client: WireClient, address: Address) -> None:
    make_topic(client, "phases")
    before = scrape(address)
    for _ in range(3):
        produce_values(client, "phases", b"a")
    after = scrape(address)
    for name in (
        f"{REQUESTS}_requests_total",
        *(
            f"{REQUESTS}_{phase}_seconds_count"
            for phase in (
                "totaltime",
                "requestqueuetime",
                "localtime",
                "remotetime",
                "responsesendtime",
            )
        ),
    ):
        assert after.value(name, request="Produce") - before.get(name, request="Produce") == 3
    total = after.value(f"{REQUESTS}_totaltime_seconds_sum", request="Produce")
    parts = sum(
        after.value(f"{REQUESTS}_{phase}_seconds_sum", request="Produce")
        for phase in ("requestqueuetime", "localtime", "remotetime", "responsesendtime")
    )
    assert parts == pytest.approx(total)


def test_a_long_poll_is_remote_time(client: WireClient, address: Address) -> None:
    topic_id = make_topic(client, "long-poll")
    before = scrape(address)
    client.request(fetch_request({topic_id: {0: 0}}, max_wait_ms=200, min_bytes=1), 13)
    after = scrape(address)
    remote, local = (
        after.value(name, request="FetchConsumer") - before.get(name, request="FetchConsumer")
        for name in (f"{REQUESTS}_remotetime_seconds_sum", f"{REQUESTS}_localtime_seconds_sum")
    )
    assert remote >= 0.15 > local


def test_errors_are_counted_by_code(client: WireClient, address: Address) -> None:
    labels = {"request": "Produce", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    before = scrape(address).get(f"{REQUESTS}_errors_total", **labels)
    client.request(produce_request("no-such-topic", batch_of(b"a")), 9)
    assert scrape(address).value(f"{REQUESTS}_errors_total", **labels) == before + 1
    client.request(HeartbeatRequest("no-such-group", 1, "m"), 4)
    errors = scrape(address).labels(f"{REQUESTS}_errors_total", "request")
    assert errors >= {"Produce", "Heartbeat"}


def test_groups_and_their_lag(broker: RunningBroker, client: WireClient, address: Address) -> None:
    make_topic(client, "lagging")
    for _ in range(5):
        produce_values(client, "lagging", b"a")
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(["lagging"])
        read = 0
        while read < 5:
            read += len(list(consumer.poll(1.0)))
        consumer.commit()
        produce_values(client, "lagging", b"b")
        metrics = scrape(address)
        numgroups = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        assert metrics.value(numgroups, protocol="classic", state="Stable") == 1
        labels = {"consumergroup": "readers", "topic": "lagging", "partition": "0"}
        assert metrics.value("kafka_consumergroup_lag", **labels) == 1
        assert metrics.value("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1


def test_open_transactions_and_their_age(
    broker: RunningBroker, client: WireClient, address: Address
) -> None:
    make_topic(client, "transactional")
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("transactional", value=b"a").result(20)
        metrics = scrape(address)
        assert metrics.value("penstock_transactions", state="Ongoing") == 1
        assert metrics.value("penstock_transaction_oldest_open_seconds") >= 0
        producer.abort_transaction()
    assert scrape(address).get("penstock_transactions", state="Ongoing") == 0


def test_connections_are_counted_by_listener(
    broker: RunningBroker, client: WireClient, address: Address
) -> None:
    name = "kafka_server_socketservermetrics_connectioncreations_total"
    before = scrape(address).value(name, listener="PLAINTEXT")
    with broker.connect() as another:
        another.request(HeartbeatRequest("g", 1, "m"), 4)
        metrics = scrape(address)
        assert metrics.value(name, listener="PLAINTEXT") == before + 1
        connections = "kafka_server_socketservermetrics_connections"
        assert metrics.value(connections, listener="PLAINTEXT") >= 2


def test_a_single_broker_is_the_controller_and_leads_everything(address: Address) -> None:
    metrics = scrape(address)
    assert metrics.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert metrics.value("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    assert metrics.value("kafka_server_kafkaserver_brokerstate") == 3
    leaders = metrics.value("kafka_server_replicamanager_leadercount")
    assert leaders == metrics.value("kafka_server_replicamanager_partitioncount") > 0


def test_refused_logins_are_counted(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="secret";'
    settings = {
        "metrics.port": "0",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    with running_broker(tmp_path, settings) as broker:
        with broker.connect() as client:
            client.request(SaslHandshakeRequest("PLAIN"), 1)
            response = client.request(SaslAuthenticateRequest(b"\0a\0wrong"), 2)
            assert response.error_code == 58
        name = "kafka_server_socketservermetrics_failedauthentications_total"
        assert scrape(address_of(broker)).value(name, listener="SASL_PLAINTEXT") == 1


def test_events_that_the_audit_log_lost_are_counted(
    broker: RunningBroker, address: Address
) -> None:
    log = broker.app.parts.audit_log
    assert log is not None
    log.dropped, log.failed = 3, 1
    name = "penstock_audit_events_lost_total"
    scraped = scrape(address)
    assert (scraped.value(name, reason="queue"), scraped.value(name, reason="disk")) == (3, 1)


# --- bounds


def test_topics_above_the_limit_are_added_up(tmp_path: Path) -> None:
    """X5: however many topics clients create, a scrape stays small."""
    with running_broker(tmp_path, {"metrics.port": "0", "metrics.max.topics": "2"}) as broker:
        with broker.connect() as client:
            for number in range(5):
                make_topic(client, f"t{number}")
                produce_values(client, f"t{number}", b"a")
        metrics = scrape(address_of(broker))
        name = f"{TOPICS}_messagesin_total"
        assert metrics.labels(name, "topic") == {"t0", "t1", OTHER_TOPICS}
        assert metrics.value(name, topic=OTHER_TOPICS) == 3
        assert metrics.value(name) == 5


def test_lags_above_the_limit_are_left_out(tmp_path: Path) -> None:
    settings = {"metrics.port": "0", "metrics.max.group.partitions": "1"}
    with running_broker(tmp_path, settings) as broker:
        with broker.connect() as client:
            make_topic(client, "t", 3)
        with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
            partitions = [TopicPartition("t", number) for number in range(3)]
            consumer.commit(dict.fromkeys(partitions, 0))
        metrics = scrape(address_of(broker))
        assert len(metrics.labels("kafka_consumergroup_lag", "partition")) == 1
        assert metrics.value("penstock_consumergroup_lag_omitted") == 2


def test_a_scrape_pauses_between_partitions(broker: RunningBroker, client: WireClient) -> None:
    make_topic(client, "many", 200)
    exposition = Exposition()
    pauses = broker.call(lambda inside: sum(1 for _ in collect_replicas(exposition, inside)))
    assert pauses >= 200


def test_requests_at_the_same_time_share_one_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "REUSE_S", 60.0)
    with running_broker(tmp_path, {"metrics.port": "0"}) as broker:
        texts = {get(address_of(broker), "/metrics").body for _ in range(3)}
        assert len(texts) == 1


# --- formats and files


def test_promtool_accepts_the_metrics(address: Address) -> None:
    promtool("check", "metrics", text=get(address, "/metrics").body)


def test_openmetrics_for_clients_that_accept_it(address: Address) -> None:
    answer = get(address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.content_type == Format.OPENMETRICS.value
    text = answer.body.decode()
    families = list(
        openmetrics_parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    )
    assert {family.name for family in families} >= {f"{TOPICS}_messagesin", f"{REQUESTS}_requests"}
    assert get(address, "/metrics").content_type == Format.PROMETHEUS.value


def test_the_documentation_lists_every_metric(broker: RunningBroker) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z0-9_]+)", text, re.MULTILINE))
    documented = {name for name in rows if _NAME.fullmatch(name)}
    assert documented == families_of(broker)


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "grafana/penstock.json"])
def test_dashboard_and_alerts_use_metrics_that_exist(broker: RunningBroker, file: str) -> None:
    text = (ROOT / "ops" / file).read_text(encoding="utf-8")
    expressions = (
        re.findall(r"expr: (?:>-\n)?((?:.*\n)(?: {10}.*\n)*)", text)
        if file.endswith("yml")
        else [
            target["expr"]
            for panel in json.loads(text)["panels"]
            for target in panel.get("targets", [])
        ]
    )
    used = {
        re.sub("_(bucket|count|sum)$", "", name)
        for expression in expressions
        for name in _NAME.findall(expression)
    }
    assert len(used) >= 15
    assert used <= families_of(broker)


def test_promtool_accepts_and_tests_the_alerts() -> None:
    directory = ROOT / "ops" / "prometheus"
    promtool("check", "config", str(directory / "prometheus.yml"))
    promtool("test", "rules", str(directory / "alerts_test.yml"))


# --- health


def test_a_broker_that_serves_its_leaderships_is_ready(
    client: WireClient, address: Address
) -> None:
    make_topic(client, "served")
    answer = get(address, "/readyz")
    assert (answer.status, answer.json) == (200, {"ready": True, "reasons": []})


def test_a_leadership_without_a_log_is_a_reason_not_to_be_ready(
    broker: RunningBroker, client: WireClient, address: Address
) -> None:
    make_topic(client, "without-log")
    key = TopicPartition("without-log", 0)
    replica = broker.call(lambda inside: inside.replicas.find(*key))
    log = replica.log
    broker.call(lambda _: replica.replace_log(None))
    answer = get(address, "/readyz")
    assert answer.status == 503
    (reason,) = answer.json["reasons"]
    assert "without-log-0" in reason
    assert scrape(address).value("kafka_server_replicamanager_offlinereplicacount") == 1
    broker.call(lambda _: replica.replace_log(log))
    assert get(address, "/readyz").status == 200


def test_a_broker_that_is_not_registered_is_not_ready(
    broker: RunningBroker, address: Address
) -> None:
    status = broker.call(lambda inside: inside.controller.session_status)
    status.is_registered = False
    answer = get(address, "/readyz")
    status.is_registered = True
    assert answer.status == 503
    assert "not registered" in answer.json["reasons"][0]


def test_a_broker_that_stops_is_not_ready(tmp_path: Path) -> None:
    with running_broker(tmp_path, {"metrics.port": "0"}) as broker:
        metrics = broker.app.metrics
        assert metrics is not None
        assert get(address_of(broker), "/readyz").status == 200
        broker.call(lambda _: metrics.set_state(BrokerState.STOPPING))
        answer = get(address_of(broker), "/readyz")
        assert (answer.status, answer.json["reasons"]) == (503, ["the broker is stopping"])
        assert get(address_of(broker), "/healthz").status == 200


def test_health_names_the_state_of_the_disks(broker: RunningBroker, address: Address) -> None:
    answer = get(address, "/healthz")
    (path,) = broker.call(lambda inside: [log_dir.path for log_dir in inside.logs.dirs])
    assert (answer.status, answer.json) == (200, {"status": "ok", "log.dirs": {path: "online"}})


def test_without_the_setting_nothing_is_served(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        assert broker.app.metrics is None
        assert broker.app.metrics_address is None

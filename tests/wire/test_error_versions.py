"""Errors of a client without rights, in every version of every API (E3, X3)."""

import logging
from collections.abc import Iterator

import pytest

from penstock.broker.errors import error_response
from penstock.broker.handlers.table import HANDLERS
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.protocol.codec import decode, encode
from penstock.protocol.fields import Struct
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.cluster.brokers import running_member
from tests.support.protocol.admin import create_topic
from tests.support.protocol.message_samples import full_message
from tests.support.protocol.requests import batch_of

SETTINGS = {**SASL_SETTINGS, "authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}

LOGIN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
OPEN_TO_ALL = {ApiKey.API_VERSIONS, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
FILTERED = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}
"""They leave out what the client may not see."""
WITHOUT_ERROR_FIELD = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in range(3)}
"""As in Kafka, which sends an empty list then."""

DENIED_REQUESTS = [
    (key, version)
    for key, spec in HANDLERS.items()
    if key not in LOGIN | OPEN_TO_ALL | FILTERED
    for version in range(spec.min_version, spec.max_version + 1)
    if (key, version) not in WITHOUT_ERROR_FIELD
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_member(tmp_path_factory.mktemp("errors"), SETTINGS) as running:
        yield running


def error_codes(value: object) -> list[int]:
    """Returns every error code in a response."""
    if isinstance(value, list):
        return [code for element in value for code in error_codes(element)]
    if not isinstance(value, Struct):
        return []
    codes: list[int] = []
    for name in value.__struct_fields__:
        content = getattr(value, name)
        codes += [content] if name.endswith("error_code") else error_codes(content)
    return codes


def test_every_version_of_every_api_reports_a_missing_permission(broker: RunningBroker) -> None:
    with watching(), logged_in(broker, "admin") as admin:
        create_topic(admin, "näme")
        silent: list[str] = []
        for key, version in DENIED_REQUESTS:
            request = full_message(api(key).request, version)
            with logged_in(broker, "ann") as ann:
                try:
                    response = ann.request(request, version)
                except (ConnectionError, EOFError):
                    continue  # refused without a response, which is an error too
            if not any(error_codes(response)):
                silent.append(f"{key.name} {version}: {response}")
        assert not silent, "\n".join(silent)


@pytest.mark.parametrize("version", range(8))
def test_offset_fetch_of_a_forbidden_group_is_an_error(broker: RunningBroker, version: int) -> None:
    request = OffsetFetchRequest("secret", [OffsetFetchRequestTopic("t", [0, 1])])
    with logged_in(broker, "ann") as ann:
        response = ann.request(request, version)
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if version < 2:
        partitions = response.topics[0].partitions
        assert [(p.partition_index, p.error_code) for p in partitions] == [(0, denied), (1, denied)]
        assert {p.committed_offset for p in partitions} == {-1}
    else:
        assert response.error_code == denied


def test_a_topic_id_without_rights_does_not_reveal_the_name(broker: RunningBroker) -> None:
    with logged_in(broker, "admin") as admin, logged_in(broker, "ann") as ann:
        create_topic(admin, "hidden-name")
        metadata = admin.request(MetadataRequest([MetadataRequestTopic(name="hidden-name")]), 12)
        topic_id = metadata.topics[0].topic_id
        data = [PartitionProduceData(0, bytes(batch_of(b"x")))]
        request = ProduceRequest(None, -1, 1000, [TopicProduceData("", topic_id, data)])
        response = ann.request(request, 13)
    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "hidden-name" not in str(response)
    assert str(topic_id) in partition.error_message


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9, 12])
@pytest.mark.parametrize("size", [1, 12, 16, 17, 18, 20, 21, 22, 23, 61])
def test_a_short_message_set_is_refused_without_a_traceback(
    broker: RunningBroker, version: int, size: int
) -> None:
    with watching(), logged_in(broker, "admin") as admin:
        create_topic(admin, "short")
        data = [PartitionProduceData(0, bytes(size))]
        request = ProduceRequest(None, -1, 1000, [TopicProduceData("short", partition_data=data)])
        response = admin.request(request, version)
    partition = response.responses[0].partition_responses[0]
    assert partition.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def versions_with_an_error(key: ApiKey) -> list[int]:
    spec = HANDLERS[key]
    error = KafkaError(ErrorCode.INVALID_REQUEST, "no")
    versions = []
    for version in range(spec.min_version, spec.max_version + 1):
        response = error_response(key, version, error)
        if response is not None:
            decoded, _ = decode(type(response), version, encode(response, version))
            assert error_codes(decoded) == [ErrorCode.INVALID_REQUEST], version
            versions.append(version)
    return versions


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: key.name)
def test_an_error_response_survives_encoding_or_does_not_exist(key: ApiKey) -> None:
    expected = {
        ApiKey.METADATA: [13],
        ApiKey.ELECT_LEADERS: [1, 2],
        ApiKey.OFFSET_FETCH: [2, 3, 4, 5, 6, 7],
    }
    versions = versions_with_an_error(key)
    assert versions == expected.get(key, versions)


def test_tracebacks_of_a_repeated_request_are_rate_limited(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("planted")

    broker.call(lambda parts: monkeypatch.setattr(parts.authorizer, "allows_cluster", fail))
    request = full_message(api(ApiKey.DESCRIBE_LOG_DIRS).request, 4)
    with (
        caplog.at_level(logging.ERROR, "penstock.broker.dispatcher"),
        logged_in(broker, "ann") as ann,
    ):
        codes = {ann.request(request, 4).error_code for _ in range(200)}
    assert codes == {ErrorCode.UNKNOWN_SERVER_ERROR}
    lines = [record for record in caplog.records if record.exc_info]
    assert 1 <= len(lines) < 20

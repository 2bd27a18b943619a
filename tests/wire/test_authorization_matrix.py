"""Every API, in every version, asked with no login, no rights and each single right (X3, M4).

The outcomes are those of Apache Kafka, which `tests/support/security/record.py` has recorded.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from penstock.broker.handlers.rights import RIGHTS
from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.protocol.api import api
from penstock.protocol.api_key import ApiKey
from penstock.security.acl_authorizer import AclAuthorizer
from tests.support.broker.in_process import WireClient, running_broker
from tests.support.broker.logins import plain_login
from tests.support.cluster.brokers import running_member
from tests.support.cluster.zookeeper_server import ZooKeeperServer
from tests.support.security.asked_rights import AskedRights
from tests.support.security.differences import DIFFERENCES
from tests.support.security.matrix import Matrix, penstock_settings
from tests.support.security.matrix_check import check_api, versions_without_case
from tests.support.security.outcomes import outcome_of
from tests.support.security.principals import PRINCIPALS, SUPER_USER
from tests.support.security.recorded import RecordedAnswers
from tests.support.security.world import grant_rights

SERVED = sorted(HANDLERS.keys() - CLUSTER_APIS)


@pytest.fixture(scope="module")
def recorded() -> RecordedAnswers:
    return RecordedAnswers.load()


class EmbeddedMatrix(NamedTuple):
    """The matrix on a single node, and the rights that the broker checks."""

    matrix: Matrix
    asked: AskedRights


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMatrix]:
    directory = tmp_path_factory.mktemp("matrix")
    with (
        running_broker(directory, penstock_settings()) as broker,
        Matrix(broker.address, HANDLERS) as matrix,
    ):
        authorizer = broker.app.broker.authorizer
        assert authorizer.acl_authorizer is not None
        asked = AskedRights(authorizer.acl_authorizer)
        authorizer.acl_authorizer = cast("AclAuthorizer", asked)
        yield EmbeddedMatrix(matrix, asked)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name.lower())
def test_only_what_kafka_responds(
    key: ApiKey, embedded: EmbeddedMatrix, recorded: RecordedAnswers
) -> None:
    """It checks the rights that the documentation lists, and no others."""
    embedded.asked.rights.clear()
    assert check_api(key, embedded.matrix, recorded) == []
    declared = {right for need in RIGHTS[key] for right in need.any_of}
    assert embedded.asked.rights == declared, "see src/penstock/broker/handlers/rights.py"


@pytest.mark.long
def test_only_what_kafka_responds_with_zookeeper(tmp_path: Path, recorded: RecordedAnswers) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as zookeeper:
        settings = {**penstock_settings(), "zookeeper.connect": zookeeper.address}
        with (
            running_broker(tmp_path, settings) as broker,
            Matrix(broker.address, HANDLERS) as matrix,
        ):
            assert [check_api(key, matrix, recorded) for key in SERVED] == [[]] * len(SERVED)


@pytest.mark.long
def test_only_what_kafka_responds_of_supervised_brokers(
    tmp_path: Path, recorded: RecordedAnswers
) -> None:
    with (
        running_member(tmp_path, penstock_settings()) as broker,
        Matrix(broker.address, HANDLERS) as matrix,
    ):
        assert [check_api(key, matrix, recorded) for key in SERVED] == [[]] * len(SERVED)


def test_every_version_is_asked() -> None:
    assert versions_without_case() == [], (
        "add a case to tests/support/security, and record Kafka's answers with "
        "`python -m tests.support.security.record`"
    )


def test_every_difference_is_needed(recorded: RecordedAnswers) -> None:
    for difference in DIFFERENCES:
        prefix = f"{difference.key:02} "
        outcomes = {
            outcome
            for name, versions in recorded.outcomes.items()
            if name.startswith(prefix)
            for titles in versions.values()
            for outcome in titles.values()
        }
        for replaced in difference.replaced:
            assert any(replaced in outcome for outcome in outcomes), (difference.key, replaced)


def test_only_brokers_send_the_requests_of_brokers(tmp_path: Path) -> None:
    """Kafka 4 has no such requests any more: each needs CLUSTER_ACTION, in every version."""
    others = [
        principal
        for principal in PRINCIPALS
        if principal is not SUPER_USER and "CLUSTER_ACTION" not in principal.title
    ]
    with running_member(tmp_path, penstock_settings()) as broker:
        with WireClient(broker.address) as admin:
            assert plain_login(admin, SUPER_USER.user).error_code == 0
            grant_rights(admin)
        for key in sorted(CLUSTER_APIS):
            for version in range(HANDLERS[key].min_version, HANDLERS[key].max_version + 1):
                request = api(key).request()
                with WireClient(broker.address) as stranger:
                    stranger.send(request, version)
                    assert stranger.is_closed(), (key, version)
        for principal in others:
            with WireClient(broker.address) as client:
                assert plain_login(client, principal.user).error_code == 0
                for key in sorted(CLUSTER_APIS):
                    for version in range(HANDLERS[key].min_version, HANDLERS[key].max_version + 1):
                        response = client.request(api(key).request(), version)
                        outcome = outcome_of(response, version, {}, principal.user)
                        where = (key, version, principal.title)
                        assert outcome == "CLUSTER_AUTHORIZATION_FAILED", where

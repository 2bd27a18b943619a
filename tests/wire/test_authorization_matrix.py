"""Every API, in every version, asked with no login, no rights and each single right (X3, M4).

The outcomes are those of Apache Kafka, which `tests/support/security/record.py` has recorded.
"""

from collections.abc import Iterator

import pytest

from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.protocol.api_key import ApiKey
from tests.support.broker.in_process import running_broker
from tests.support.security.matrix import Matrix, penstock_settings
from tests.support.security.matrix_check import check_api, versions_without_case
from tests.support.security.recorded import RecordedAnswers

SERVED = sorted(HANDLERS.keys() - CLUSTER_APIS)


@pytest.fixture(scope="module")
def recorded() -> RecordedAnswers:
    return RecordedAnswers.load()


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    directory = tmp_path_factory.mktemp("matrix")
    with (
        running_broker(directory, penstock_settings()) as broker,
        Matrix(broker.address, HANDLERS) as matrix,
    ):
        yield matrix


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name.lower())
def test_only_what_kafka_responds(key: ApiKey, matrix: Matrix, recorded: RecordedAnswers) -> None:
    assert check_api(key, matrix, recorded) == []


def test_every_version_is_asked() -> None:
    assert versions_without_case() == [], (
        "add a case to tests/support/security, and record Kafka's answers with "
        "`python -m tests.support.security.record`"
    )

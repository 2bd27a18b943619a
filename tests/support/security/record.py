"""Asks Apache Kafka the requests of the authorization matrix, and stores its answers.

    python -m tests.support.security.record        writes kafka_answers.json beside this file

It starts the release that the tests use, and then the older release of ZooKeeper mode for the
versions of requests that the newer one no longer has. It takes about two minutes.
"""

import tempfile
from pathlib import Path
from typing import Final

from penstock.broker.handlers.table import HANDLERS
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.broker.in_process import WireClient
from tests.support.kafka.broker import KafkaBroker, KafkaParts
from tests.support.security.cases import CASES
from tests.support.security.matrix import SETTINGS, TOKEN_SETTINGS, Matrix, listener_settings
from tests.support.security.recorded import RecordedAnswers

RELEASES: Final = ("kafka.version", "zookeeper.kafka.version")
"""Properties of tools/kafka/pom.xml, the reference first."""
_UNADVERTISED: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
"""Kafka serves them, but advertises them only with a plugin that receives metrics."""


def main() -> None:
    """Records all answers."""
    recorded = RecordedAnswers({}, {})
    for release in RELEASES:
        parts = KafkaParts.find(release)
        with tempfile.TemporaryDirectory() as directory:
            settings = {
                **SETTINGS,
                **TOKEN_SETTINGS,
                **listener_settings("PLAINTEXT"),
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
            with KafkaBroker(parts, Path(directory), settings) as broker:
                _record(recorded, parts.version, ("127.0.0.1", broker.port))
        recorded.save()


def _record(recorded: RecordedAnswers, release: str, address: tuple[str, int]) -> None:
    newer = {key: low for spans in recorded.releases.values() for key, (low, _) in spans.items()}
    versions = {
        key: (low, min(high, newer[key] - 1) if key in newer else high)
        for key, (low, high) in _advertised(address).items()
        if key in {case.key for case in CASES} and low < newer.get(key, high + 1)
    }
    recorded.releases[release] = versions
    with Matrix(address, versions) as matrix:
        for case in CASES:
            answers = recorded.outcomes.setdefault(case.name, {})
            low, high = versions.get(case.key, (0, -1))
            for version in range(max(low, case.first, case.first_recorded), high + 1):
                answers[version] = matrix.outcomes(case, version)


def _advertised(address: tuple[str, int]) -> dict[ApiKey, tuple[int, int]]:
    with WireClient(address) as client:
        response = client.request(ApiVersionsRequest("matrix", "1"), 3)
    known = {int(key) for key in ApiKey}
    result = {key: HANDLERS[key][1:] for key in _UNADVERTISED}
    for api in response.api_keys:
        if api.api_key in known:
            result[ApiKey(api.api_key)] = (api.min_version, api.max_version)
    return result


if __name__ == "__main__":
    main()

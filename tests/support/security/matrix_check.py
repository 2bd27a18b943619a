"""Compares the outcomes of a broker of ours with the recorded ones of Kafka."""

from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.protocol.api_key import ApiKey
from tests.support.security.cases import CASES
from tests.support.security.differences import DIFFERENCES
from tests.support.security.matrix import Matrix
from tests.support.security.recorded import RecordedAnswers


def check_api(key: ApiKey, matrix: Matrix, recorded: RecordedAnswers) -> list[str]:
    """Returns one line for each outcome that is neither Kafka's nor a declared difference."""
    problems = []
    spec = HANDLERS[key]
    for case in CASES:
        if case.key != key:
            continue
        for version, expected in recorded.outcomes[case.name].items():
            if not spec.min_version <= version <= spec.max_version:
                continue
            for title, outcome in matrix.outcomes(case, version).items():
                if outcome != expected_outcome(key, expected[title]):
                    problems.append(
                        f"{case.name} v{version}, {title}: {outcome!r}, Kafka: {expected[title]!r}"
                    )
    return problems


def expected_outcome(key: ApiKey, outcome: str) -> str:
    """Returns what Penstock responds where Kafka has this outcome."""
    for difference in DIFFERENCES:
        if difference.key == key:
            outcome = difference.apply(outcome)
    return outcome


def unrecorded_versions(recorded: RecordedAnswers) -> list[str]:
    """Returns the served versions of APIs for which no answer was recorded."""
    return [
        f"{key.name} v{version}"
        for key, spec in HANDLERS.items()
        if key not in CLUSTER_APIS
        for version in range(spec.min_version, spec.max_version + 1)
        if not any(
            version in recorded.outcomes.get(case.name, {}) for case in CASES if case.key == key
        )
    ]

"""Compares the outcomes of a broker of ours with the recorded ones of Kafka."""

from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS
from penstock.protocol.api_key import ApiKey
from tests.support.security.cases import CASES
from tests.support.security.differences import DIFFERENCES
from tests.support.security.matrix import Matrix
from tests.support.security.recorded import RecordedAnswers


def check_api(key: ApiKey, matrix: Matrix, recorded: RecordedAnswers) -> list[str]:
    """Returns one line for each outcome that is neither Kafka's nor a declared difference."""
    problems: list[str] = []
    matrix.leaks.clear()
    spec = HANDLERS[key]
    for case in CASES:
        if case.key != key:
            continue
        answers = recorded.outcomes[case.name]
        for version in range(max(case.first, spec.min_version), spec.max_version + 1):
            # Versions that no release of Kafka serves are compared with the nearest one.
            nearest = max(min(answers), min(version, max(answers)))
            for title, outcome in matrix.outcomes(case, version).items():
                expected = answers[nearest][title]
                if nearest != version:
                    # One of them may have topic ids in the place of names.
                    outcome, expected = outcome.replace("#", ""), expected.replace("#", "")
                if outcome != expected_outcome(key, expected):
                    problems.append(
                        f"{case.name} v{version}, {title}: {outcome!r}, Kafka: {expected!r}"
                    )
    return [*problems, *matrix.leaks]


def expected_outcome(key: ApiKey, outcome: str) -> str:
    """Returns what Penstock responds where Kafka has this outcome."""
    for difference in DIFFERENCES:
        if difference.key == key:
            outcome = difference.apply(outcome)
    return outcome


def versions_without_case() -> list[str]:
    """Returns the served versions of APIs that no request of the matrix has."""
    return [
        f"{key.name} v{version}"
        for key, spec in HANDLERS.items()
        if key not in CLUSTER_APIS
        for version in range(spec.min_version, spec.max_version + 1)
        if not any(case.key == key and case.first <= version for case in CASES)
    ]

"""The answers of Apache Kafka to the requests of the matrix, in `kafka_answers.json`.

For each request and range of versions the file has what a client without a login and one without
rights get, and which principals get something else:

    "01 Fetch as a consumer": {
      "13-18": {
        "no login": "closed",
        "no rights": "[…TOPIC_AUTHORIZATION_FAILED…]",
        "Topic READ, consumer, admin": "[…NONE…]"
      }
    }
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias

from penstock.protocol.api_key import ApiKey
from tests.support.security.principals import NO_LOGIN, NO_RIGHTS, PRINCIPALS

FILE: Final = Path(__file__).with_name("kafka_answers.json")
TITLES: Final = (NO_LOGIN, *(principal.title for principal in PRINCIPALS))

Outcomes: TypeAlias = dict[str, str]
"""The outcome for each principal, by its title."""


@dataclass
class RecordedAnswers:
    """The answers of one or more releases of Kafka."""

    releases: dict[str, dict[ApiKey, tuple[int, int]]]
    """The versions of each API that were asked of each release."""
    outcomes: dict[str, dict[int, Outcomes]]
    """By name of the case, and version."""

    @classmethod
    def load(cls) -> Self:
        """Reads the file."""
        content = json.loads(FILE.read_text())
        releases = {
            release: {ApiKey[name]: (low, high) for name, (low, high) in versions.items()}
            for release, versions in content["releases"].items()
        }
        outcomes: dict[str, dict[int, Outcomes]] = {}
        for case, ranges in content["answers"].items():
            versions = outcomes.setdefault(case, {})
            for span, groups in ranges.items():
                low, _, high = span.partition("-")
                for version in range(int(low), int(high or low) + 1):
                    versions[version] = _expanded(groups)
        return cls(releases, outcomes)

    def save(self) -> None:
        """Writes the file."""
        content = {
            "releases": {
                release: {key.name: list(span) for key, span in sorted(versions.items())}
                for release, versions in self.releases.items()
            },
            "answers": {case: _ranges(self.outcomes[case]) for case in sorted(self.outcomes)},
        }
        FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _ranges(versions: Mapping[int, Outcomes]) -> dict[str, dict[str, str]]:
    """Returns the outcomes by range of consecutive versions with the same ones."""
    spans: list[tuple[int, int, Outcomes]] = []
    for version, outcomes in sorted(versions.items()):
        if spans and spans[-1][1] == version - 1 and spans[-1][2] == outcomes:
            spans[-1] = (spans[-1][0], version, outcomes)
        else:
            spans.append((version, version, outcomes))
    return {
        str(low) if low == high else f"{low}-{high}": _grouped(outcomes)
        for low, high, outcomes in spans
    }


def _grouped(outcomes: Outcomes) -> dict[str, str]:
    usual = outcomes[NO_RIGHTS.title]
    result = {NO_LOGIN: outcomes[NO_LOGIN], NO_RIGHTS.title: usual}
    titles: dict[str, list[str]] = {}
    for title in TITLES:
        if title not in result and outcomes[title] != usual:
            titles.setdefault(outcomes[title], []).append(title)
    return {**result, **{", ".join(group): outcome for outcome, group in titles.items()}}


def _expanded(groups: Mapping[str, str]) -> Outcomes:
    result = dict.fromkeys(TITLES, groups[NO_RIGHTS.title])
    for titles, outcome in groups.items():
        for title in titles.split(", "):
            result[title] = outcome
    return result

"""Reads the metrics and the health of a broker over HTTP."""

import json
import subprocess
from http.client import HTTPConnection
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 20.0
Address = tuple[str, int]


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def get(address: Address, path: str, **headers: str) -> Answer:
    connection = HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.getheader("Content-Type", ""), response.read())
    finally:
        connection.close()


class Metrics:
    """The samples of one scrape, parsed by Prometheus' Python client."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def get(self, name: str, **labels: str) -> float:
        return self.samples.get((name, frozenset(labels.items())), 0.0)

    def labels(self, name: str, label: str) -> set[str]:
        """The values of a label in all samples of this name."""
        return {
            dict(pairs)[label]
            for sample, pairs in self.samples
            if sample == name and label in dict(pairs)
        }

    @property
    def names(self) -> set[str]:
        """The names of the families, as a scrape shows them: counters with `_total`."""
        return {
            f"{name}_total" if family.type == "counter" else name
            for name, family in self.families.items()
        }


def scrape(address: Address) -> Metrics:
    answer = get(address, "/metrics")
    assert answer.status == 200, answer
    return Metrics(answer.body.decode())


def promtool(*arguments: str, text: bytes = b"") -> str:
    """Runs promtool, which must find nothing to complain about; returns its output."""
    done = subprocess.run(
        ["promtool", *arguments], input=text, capture_output=True, timeout=60, check=False
    )
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output

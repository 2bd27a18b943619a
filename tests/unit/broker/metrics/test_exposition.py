"""The text formats are those that Prometheus reads."""

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker.metrics.exposition import Exposition, Format, accepted_format
from penstock.core.histogram import Histogram
from tests.support.metrics.scraping import promtool

AWKWARD = 'a "quoted"\\path\nnext line'
PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def example() -> Exposition:
    exposition = Exposition()
    exposition.counter("requests_total", "How many\nthere were.").add(3, topic=AWKWARD)
    exposition.gauge("size_bytes", "How large.").add(2.5)
    exposition.gauge("unused", "Without a sample.")
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.record(value)
    exposition.histogram("wait_seconds", "How long.").add_histogram(histogram, request="Fetch")
    return exposition


@pytest.mark.parametrize("text_format", Format)
def test_both_formats_are_parsed_as_they_were_meant(text_format: Format) -> None:
    text = example().text(text_format).decode()
    families = (
        openmetrics_parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        if text_format is Format.OPENMETRICS
        else text_string_to_metric_families(text)
    )
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    request = ("request", "Fetch")
    assert samples == {
        ("requests_total", ("topic", AWKWARD)): 3,
        ("size_bytes",): 2.5,
        ("wait_seconds_bucket", ("le", "0.1"), request): 2,
        ("wait_seconds_bucket", ("le", "1.0"), request): 3,
        ("wait_seconds_bucket", ("le", "+Inf"), request): 4,
        ("wait_seconds_count", request): 4,
        ("wait_seconds_sum", request): pytest.approx(7.65),
    }


def test_promtool_accepts_it() -> None:
    promtool("check", "metrics", text=example().text(Format.PROMETHEUS))


def test_a_counter_without_total_and_a_second_family_of_a_name_are_refused() -> None:
    exposition = Exposition()
    with pytest.raises(ValueError, match="_total"):
        exposition.counter("requests", "")
    exposition.gauge("size", "")
    with pytest.raises(ValueError, match="twice"):
        exposition.gauge("size", "")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Format.PROMETHEUS),
        ("*/*", Format.PROMETHEUS),
        ("text/html,application/xhtml+xml", Format.PROMETHEUS),
        (PROMETHEUS_ACCEPT, Format.OPENMETRICS),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.1", Format.PROMETHEUS),
        ("application/openmetrics-text;q=x", Format.PROMETHEUS),
        ("application/openmetrics-text;q=0", Format.PROMETHEUS),
    ],
)
def test_the_client_chooses_the_format(accept: str, expected: Format) -> None:
    assert accepted_format(accept) is expected

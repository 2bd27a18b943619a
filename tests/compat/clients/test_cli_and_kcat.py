"""`penstock produce`, `consume` and `doctor` beside kcat, at ours and at real brokers (C2)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.client.cli import Cli
from tests.support.kafka_clients.kcat import KcatClient

FORMATS = [
    r"%t [%p] at %o: %k=%s (%S, %K)\n",
    r"%R%s%R",
    r"%T %h|%s\x0a",
    r"%k\t%s\r\n100%%",
    r"%s\012%K",
]
LINES = b"k1;v1\nk2;\n;v3\nk4;two;parts\nk5;\xc3\xa9\xff\x00\n"
RESET = "topic.auto.offset.reset=latest"
HEADERS = ["-H", "a=1", "-H", "b=", "-H", "c"]


@pytest.fixture(scope="module")
def kcat() -> Callable[..., bytes]:
    client = KcatClient()

    def run(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
        return client._run(bootstrap, *arguments, stdin=stdin)

    return run


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines"
    path.write_bytes(LINES)
    return str(path)


@pytest.mark.parametrize("maker", ["penstock", "kcat"])
def test_consume_formats_records_like_kcat(
    bootstrap: str,
    new_topic: Callable[..., str],
    kcat: Callable[..., bytes],
    lines: str,
    maker: str,
) -> None:
    """The output does not depend on which of the two wrote the records."""
    topic = new_topic(1)
    cli = Cli(bootstrap)
    if maker == "penstock":
        cli("produce", topic, lines, "-K", ";", "-Z", *HEADERS)
    else:
        kcat(bootstrap, "-P", "-t", topic, "-K", ";", "-Z", *HEADERS, stdin=LINES)
    for text in FORMATS:
        theirs = kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-f", text)
        ours = cli("consume", topic, "-e", "-f", text).stdout_bytes
        assert ours == theirs
        assert ours


@pytest.mark.parametrize("start", ["beginning", "end", "2", "-2", "99"])
def test_consume_starts_at_the_same_offsets_as_kcat(
    bootstrap: str, new_topic: Callable[..., str], kcat: Callable[..., bytes], start: str
) -> None:
    topic = new_topic(1)
    cli = Cli(bootstrap)
    cli("produce", topic, stdin="a\nb\nc\nd\n")
    theirs = kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-o", start, "-X", RESET)
    assert cli("consume", topic, "-e", "-o", start).stdout_bytes == theirs


def test_produce_accepts_the_json_output_of_kcat(
    bootstrap: str, new_topic: Callable[..., str], kcat: Callable[..., bytes]
) -> None:
    topic = new_topic(1)
    kcat(bootstrap, "-P", "-t", topic, "-K", ";", "-H", "a=1", stdin=b"k;v\nl;w\n")
    printed = kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-J")
    cli = Cli(bootstrap)
    cli("produce", topic, "-i", "json", stdin=printed.decode())
    text = r"%k=%s %h %T\n"
    first, second, *copies = cli("consume", topic, "-e", "-f", text).stdout.splitlines()
    assert copies == [first, second]
    assert first.startswith("k=v a=1 ")


def test_kcat_reads_a_committed_transaction(
    bootstrap: str, new_topic: Callable[..., str], kcat: Callable[..., bytes]
) -> None:
    topic = new_topic(1)
    cli = Cli(bootstrap)
    cli("produce", topic, "--transactional-id", topic, stdin="a\nb\n")
    failed = cli.attempt("produce", topic, "--transactional-id", topic, "-K", ";", stdin="k;c\nd\n")
    assert failed.exit_code == 1
    committed = kcat(
        *(bootstrap, "-C", "-t", topic, "-e", "-q", "-X", "isolation.level=read_committed")
    )
    assert committed == b"a\nb\n"


def test_doctor_reports_no_problem(bootstrap: str) -> None:
    """On Penstock and on Kafka: the checks need nothing that only Penstock has."""
    report = Cli(bootstrap).json("doctor", bootstrap)
    assert report["ok"], report["problem"]
    assert {row["status"] for row in report["steps"]} == {"ok"}

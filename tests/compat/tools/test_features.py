"""kafka-features.sh: the levels of the cluster are shown, raised and lowered."""

import re
from collections.abc import Iterator

import pytest

from tests.support.broker.process import start_broker
from tests.support.kafka.tools import KafkaTools, Shell

HIGHEST = {"group.version": 1, "transaction.version": 2}


@pytest.fixture(scope="module")
def shell(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A broker of this module: changed feature levels would affect other tests."""
    with start_broker(tmp_path_factory.mktemp("features"), {"node.id": "1"}) as running:
        yield Shell(tools, running.bootstrap)


@pytest.fixture(autouse=True)
def _highest_levels(shell: Shell) -> None:
    """Each test starts with the levels of a new cluster."""
    options = [f"--feature={name}={level}" for name, level in HIGHEST.items()]
    shell("features", "upgrade", *options)


def described(shell: Shell, *arguments: str) -> tuple[dict[str, int], int]:
    """Returns the finalized levels and their epoch."""
    levels, epochs = {}, set()
    for line in shell("features", "describe", *arguments).lines:
        match = re.fullmatch(r"Feature: (\S+) .* FinalizedVersionLevel: (\d+)\s+Epoch: (\d+)", line)
        assert match is not None, line
        levels[match[1]] = int(match[2])
        epochs.add(int(match[3]))
    (epoch,) = epochs
    return levels, epoch


def test_feature_levels_are_described(shell: Shell) -> None:
    """Without `metadata.version`, which belongs to Kafka's controllers."""
    assert described(shell)[0] == HIGHEST
    assert described(shell, "--node-id", "1") == described(shell)


def test_feature_levels_are_lowered_and_raised(shell: Shell) -> None:
    _, epoch = described(shell)
    down = shell("features", "downgrade", "--feature", "transaction.version=1")
    assert down.lines == ["transaction.version was downgraded to 1."]
    unsafe = shell("features", "downgrade", "--unsafe", "--feature", "group.version=0")
    assert unsafe.lines == ["group.version was downgraded to 0."]
    assert described(shell) == ({"group.version": 0, "transaction.version": 1}, epoch + 2)
    up = shell(
        "features", "upgrade", "--feature", "transaction.version=2", "--feature", "group.version=1"
    )
    assert up.lines == [
        "group.version was upgraded to 1.",
        "transaction.version was upgraded to 2.",
    ]
    assert described(shell) == (HIGHEST, epoch + 3)


def test_features_are_disabled(shell: Shell) -> None:
    run = shell(
        "features", "disable", "--feature", "transaction.version", "--feature", "group.version"
    )
    assert run.lines == ["group.version was disabled.", "transaction.version was disabled."]
    assert described(shell)[0] == {"group.version": 0, "transaction.version": 0}


def test_dry_runs_change_nothing(shell: Shell) -> None:
    before = described(shell)
    down = shell("features", "downgrade", "--dry-run", "--feature", "transaction.version=0")
    assert down.lines == ["transaction.version can be downgraded to 0."]
    off = shell("features", "disable", "--dry-run", "--feature", "group.version")
    assert off.lines == ["group.version can be disabled."]
    refused = shell.attempt("features", "upgrade", "--dry-run", "--feature", "group.version=7")
    assert refused.exit == 1
    assert refused.lines[0].startswith("Can not upgrade group.version to 7. ")
    assert described(shell) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("downgrade --feature group.version=9", "broker 1 supports levels 0 to 1"),
        ("upgrade --feature transaction.version=1", "lower than 2, its level now"),
        ("disable --feature share.version", "only group.version, transaction.version"),
        ("upgrade --metadata 4.0-IV3", "metadata.version cannot be set to level 25: there is no"),
        ("upgrade --release-version 4.0-IV3", "there is no such feature"),
        ("upgrade --feature group.version=1 --feature transaction.version=3", "levels 0 to 2"),
    ],
)
def test_invalid_levels_are_rejected(shell: Shell, arguments: str, words: str) -> None:
    """E6: the tool prints the reason for each feature of the request, and no level changes."""
    before = described(shell)
    refused = shell.attempt("features", *arguments.split())
    assert refused.exit == 1
    assert "operation(s) failed." in refused.err
    failed = [line for line in refused.lines if line.startswith("Could not ")]
    assert failed
    assert all(words in line for line in failed)
    assert described(shell) == before

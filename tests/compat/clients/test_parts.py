"""A client that is not installed is named, with what to do about it."""

import shutil
from pathlib import Path

import pytest

from tests.support.kafka.broker import MissingPartError
from tests.support.kafka_clients import ALL, program


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith(("java-", "franz-go"))])
def test_what_make_setup_builds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PARTS", tmp_path)
    with pytest.raises(
        MissingPartError, match=name.split("-")[-1] + ".* is missing: run make setup"
    ):
        ALL[name]()


def test_kafkajs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PARTS", tmp_path)
    with pytest.raises(MissingPartError, match="KafkaJS is missing: run make setup"):
        ALL["kafkajs"]()


@pytest.mark.parametrize(("name", "part"), [("kcat", "kcat"), ("kafkajs", r"Node\.js")])
def test_what_the_system_provides(name: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: None)
    with pytest.raises(MissingPartError, match=f"{part}.* is missing: run make setup"):
        ALL[name]()

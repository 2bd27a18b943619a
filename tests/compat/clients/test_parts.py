"""The error for a missing client names it and says how to install it."""

import shutil
from pathlib import Path

import pytest

from tests.support.kafka.broker import MissingPartError
from tests.support.kafka_clients import ALL, program


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith(("java-", "franz-go"))])
def test_a_missing_build_of_make_setup_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "PARTS", tmp_path)
    with pytest.raises(
        MissingPartError, match=name.split("-")[-1] + ".* is missing: run make setup"
    ):
        ALL[name]()


def test_missing_kafkajs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PARTS", tmp_path)
    with pytest.raises(MissingPartError, match="KafkaJS is missing: run make setup"):
        ALL["kafkajs"]()


@pytest.mark.parametrize(("name", "part"), [("kcat", "kcat"), ("kafkajs", r"Node\.js")])
def test_a_missing_system_program_is_named(
    name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: None)
    with pytest.raises(MissingPartError, match=f"{part}.* is missing: run make setup"):
        ALL[name]()

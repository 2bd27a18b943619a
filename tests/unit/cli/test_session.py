"""What all commands share: settings, questions, errors, exit codes."""

import json
import sys
from collections.abc import Callable
from inspect import getmembers, isfunction
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli import complete, session
from penstock.cli.app import new_group
from penstock.cli.output import UsageError
from penstock.cli.session import DEFAULT_TIMEOUT_MS, Session, command, describe_error, with_errors
from penstock.client.admin import AdminError
from penstock.client.admin.admin import Admin
from penstock.client.settings import AdminOptions
from penstock.core.errors import ErrorCode, KafkaError


def failing(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "status", "stderr"),
    [
        (UsageError("say which"), 2, "penstock: say which\n"),
        (
            KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no group", remedy="see `list_groups`"),
            1,
            "penstock: no group: see penstock group list (GROUP_ID_NOT_FOUND)\n",
        ),
        (
            AdminError(
                "delete_topics",
                {"a": KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic a: none")},
                {"b": None},
            ),
            1,
            "penstock: topic a: none (UNKNOWN_TOPIC_OR_PARTITION)\npenstock: succeeded: b\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (typer.Abort(), 130, ""),
    ],
)
def test_exit_codes(
    error: BaseException, status: int, stderr: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        with_errors(False, failing(error))
    assert ended.value.code == status
    assert capsys.readouterr() == ("", stderr)


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        with_errors(True, failing(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "none")))
    assert json.loads(capsys.readouterr().err) == {
        "error": "GROUP_ID_NOT_FOUND",
        "message": "none",
    }


def test_every_call_of_the_client_has_a_command() -> None:
    calls = {name for name, _ in getmembers(Admin, isfunction) if name[0] != "_"} - {"close"}
    assert calls <= set(session._COMMANDS)


def test_settings_get_the_names_of_property_files() -> None:
    error = KafkaError(
        ErrorCode.NETWORK_EXCEPTION,
        "no connection",
        remedy="set `security_protocol`, check `bootstrap_servers`",
    )
    assert describe_error(error) == (
        "no connection: set security.protocol, check --bootstrap-server"
    )


def test_settings_come_from_the_file_and_from_options(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=a:1\nclient.id=mine\nretries=3\n")
    options = Session(config_file=path, settings=["client.id=other"]).options(AdminOptions)
    assert options == {
        "bootstrap_servers": "a:1",
        "client_id": "other",
        "retries": "3",
        "default_api_timeout_ms": DEFAULT_TIMEOUT_MS,
    }
    options = Session("b:2", path, timeout=1.5).options(AdminOptions)
    assert (options["bootstrap_servers"], options["client_id"]) == ("b:2", "mine")
    assert (options["default_api_timeout_ms"], options["request_timeout_ms"]) == (1500, 1500)


def test_the_calls_of_a_producer_block_for_the_timeout_at_most() -> None:
    assert Session(timeout=1.5).producer_options()["max_block_ms"] == 1500
    options = Session(timeout=1.5, settings=["max.block.ms=7"]).producer_options()
    assert options["max_block_ms"] == "7"


def test_settings_that_are_not_known_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Session(settings=["ssl.provider=x"]).options(AdminOptions)
    assert "not used here: ssl.provider" in capsys.readouterr().err


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("a=\\u00zz")
    for invalid_session, reason in (
        (Session(settings=["x"]), "-X x: it must be KEY=VALUE"),
        (Session(config_file=tmp_path / "none"), "--command-config: No such file"),
        (Session(config_file=tmp_path / "bad"), "bad:1: "),
    ):
        with pytest.raises(UsageError, match=reason):
            invalid_session.options(AdminOptions)


def test_a_confirmation_is_required_without_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Session().confirm("Sure?", yes=True)
    with pytest.raises(UsageError, match=r"Sure\? There is no terminal.*add --yes"):
        Session().confirm("Sure?", yes=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    questions: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        questions.append(question)
        return len(questions) > 1

    monkeypatch.setattr(typer, "confirm", confirm)
    with pytest.raises(SystemExit) as ended:
        Session().confirm("Sure?", yes=False)
    assert (ended.value.code, capsys.readouterr().err) == (1, "penstock: nothing was done\n")
    Session().confirm("Sure?", yes=False)
    assert questions == ["Sure?", "Sure?"]


def test_a_command_has_its_own_and_the_common_options() -> None:
    app = new_group("x")
    app.callback()(lambda: None)
    arguments: list[object] = []

    @command(app, "do")
    def do(session: Session, name: str, count: int = 1) -> None:
        """Do it."""
        arguments.extend([session.bootstrap_server, session.out.as_json, name, count])

    result = CliRunner().invoke(app, ["do", "x", "-b", "h:1", "--count", "2", "--json"])
    assert (result.exit_code, arguments) == (0, ["h:1", True, "x", 2])
    assert CliRunner().invoke(app, ["do"]).exit_code == 2


def test_completion_is_silent_where_no_broker_is(capsys: pytest.CaptureFixture[str]) -> None:
    """E6 must not be printed between a user's words."""
    ctx = typer.Context(typer.main.get_command(new_single()))
    ctx.params = {"bootstrap_server": "127.0.0.1:1", "settings": ["no.such=1"]}
    assert complete.topics(ctx, "") == []
    ctx.params["settings"] = ["broken"]
    assert complete.groups(ctx, "") == []
    assert capsys.readouterr() == ("", "")


def new_single() -> typer.Typer:
    app = typer.Typer()
    app.command()(lambda: None)
    return app

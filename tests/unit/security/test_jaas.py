"""The `sasl.jaas.config` format (X2)."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.jaas import (
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    LoginModule,
    login_module,
    parse_jaas,
    plain_users,
)


def test_users_of_the_plain_module() -> None:
    text = (
        f"{PLAIN_LOGIN_MODULE} required\n"
        '  username="admin" password="x"  // for the brokers\n'
        '  user_ann="se\\"cret" user_bob=\'b;=b\' /* nobody\n else */ user_eve=simple-1;'
    )
    assert plain_users(text) == {"ann": 'se"cret', "bob": "b;=b", "eve": "simple-1"}


def test_several_entries() -> None:
    assert parse_jaas("a.B REQUIRED; c.D optional x=y;") == [
        LoginModule("a.B", "required", {}),
        LoginModule("c.D", "optional", {"x": "y"}),
    ]


def test_escapes_in_quotes() -> None:
    (module,) = parse_jaas(r'a required k="\t\n\101\\\q" "user_a@b"="c";')
    assert module.options == {"k": "\t\nA\\q", "user_a@b": "c"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no login module given"),
        ("// nothing", "no login module given"),
        ("a.B", "no control flag"),
        ("a.B;", "no control flag"),
        ("a.B mandatory;", "'mandatory' is not a control flag"),
        ('a.B required k="v"', "does not end with a semicolon"),
        ("a.B required k;", "option 1 has no value"),
        ("a.B required k=;", "option 1 has no value"),
        ("a.B required j=1 k v;", "option 2 has no value"),
        ("a.B required =v;", "no name before '='"),
        ("= required;", "expected the class"),
        ('a.B required k="v;', "quote at character 16 is never closed"),
        ("a.B required k=a@b;", "put values into double quotes"),
    ],
)
def test_the_error_of_an_invalid_text_has_the_reason(text: str, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as raised:
        parse_jaas(text)
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_the_class_must_be_the_one_that_is_needed() -> None:
    with pytest.raises(KafkaError, match=r"must be .*PlainLoginModule, not .*ScramLoginModule"):
        plain_users(f"{SCRAM_LOGIN_MODULE} required;")
    with pytest.raises(KafkaError, match="2 login modules"):
        login_module("a required; a required;", "a")


def test_secrets_stay_out_of_messages_and_logs() -> None:
    with pytest.raises(KafkaError) as raised:
        parse_jaas('a required password="hunter2" user_ann="hunter2" k;')
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in repr(parse_jaas('a required password="hunter2";'))


@given(st.dictionaries(st.text("abc_-.$", min_size=1), st.text()))
def test_any_value_can_be_quoted(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return escaped.replace("\n", "\\n").replace("\r", "\\r")

    text = "a required " + " ".join(f'{k}="{quoted(v)}"' for k, v in options.items()) + ";"
    assert parse_jaas(text) == [LoginModule("a", "required", options)]


@given(st.text("ab=;\"\\'/* \n", max_size=30))
def test_arbitrary_text_is_refused_or_parsed(text: str) -> None:
    modules: list[LoginModule] | None = None
    with suppress(KafkaError):
        modules = parse_jaas(text)
    assert modules is None or all(module.name and module.flag for module in modules)

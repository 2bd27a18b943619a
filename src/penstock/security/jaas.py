"""The format of `sasl.jaas.config` and of JAAS files (X2).

An entry is a login module class, a flag, options and a semicolon. A file has named sections of
entries: `Client { … };`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.core.errors import ErrorCode, KafkaError

PLAIN_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KERBEROS_LOGIN_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
OAUTHBEARER_LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ZOOKEEPER_LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
SCRAM_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_USER_OPTION = "user_"
_FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | //[^\r\n]* | /\*.*?\*/ )
  | (?P<word> [\w.$-]+ )
  | (?P<quoted> "(?:\\.|[^"\\\r\n])*" | '(?:\\.|[^'\\\r\n])*' )
  | (?P<sign> [=;{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """One entry of the configuration. The repr has no values of options."""

    name: str
    flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r}, {self.flag!r}, options={sorted(self.options)})"


class _Token(NamedTuple):
    sign: bool
    """Whether it is `=`, `;` or a brace."""
    text: str


class _SyntaxError(Exception):
    """Its text never quotes values: they may be passwords."""


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"sasl.jaas.config: {reason}")


def _unescape(match: re.Match[str]) -> str:
    text = match[1]
    if text[0] in "01234567":
        return chr(int(text, 8))
    return _CONTROL.get(text, text)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] in "\"'":
                raise _SyntaxError(f"the quote at character {at + 1} is never closed")
            raise _SyntaxError(
                f"unexpected {text[at]!r} at character {at + 1}; put values into double quotes"
            )
        if match["word"] is not None:
            yield _Token(False, match["word"])
        elif match["quoted"] is not None:
            yield _Token(False, _ESCAPE.sub(_unescape, match["quoted"][1:-1]))
        elif match["sign"] is not None:
            yield _Token(True, match["sign"])
        at = match.end()


def parse_jaas(text: str) -> list[LoginModule]:
    """Returns the entries of a configuration, at least one; raises KafkaError if it is invalid."""
    try:
        return _parse_entries(text)
    except _SyntaxError as error:
        raise _invalid(str(error)) from None


def _parse_entries(text: str) -> list[LoginModule]:
    tokens = _tokens(text)
    modules = [_entry(_class_name(first), tokens) for first in tokens]
    if not modules:
        raise _SyntaxError(f"no login module given; write '{PLAIN_LOGIN_MODULE} required …;'")
    return modules


def parse_jaas_file(text: str, file_name: str) -> dict[str, list[LoginModule]]:
    """Returns the entries of each section of a file; raises KafkaError if it is invalid."""
    try:
        return _parse_sections(text)
    except _SyntaxError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{file_name}: {error}",
            remedy='write sections as Client { LOGIN_MODULE required name="…"; };',
        ) from None


def _parse_sections(text: str) -> dict[str, list[LoginModule]]:
    tokens = _tokens(text)
    sections: dict[str, list[LoginModule]] = {}
    for name in tokens:
        if name.sign or next(tokens, None) != (True, "{"):
            raise _SyntaxError("expected the name of a section and '{'")
        if name.text in sections:
            raise _SyntaxError(f"there are two sections {name.text}")
        modules = []
        while (token := next(tokens, None)) != (True, "}"):
            if token is None:
                raise _SyntaxError(f"the section {name.text} does not end with '}};'")
            modules.append(_entry(_class_name(token), tokens))
        if not modules or next(tokens, None) != (True, ";"):
            raise _SyntaxError(f"the section {name.text} is empty or does not end with '}};'")
        sections[name.text] = modules
    return sections


def _class_name(token: _Token) -> str:
    if token.sign:
        raise _SyntaxError(f"expected the class of a login module, found {token.text!r}")
    return token.text


def _entry(name: str, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, None)
    if flag is None or flag.sign:
        raise _SyntaxError(f"no control flag after {name}; write 'required'")
    if flag.text.lower() not in _FLAGS:
        raise _SyntaxError(f"{flag.text!r} is not a control flag; it is one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    for number, key in enumerate(tokens, 1):
        if key.sign:
            if key.text == ";":
                return LoginModule(name, flag.text.lower(), options)
            raise _SyntaxError("an option has no name before '='")
        equals, value = next(tokens, None), next(tokens, None)
        if equals != (True, "=") or value is None or value.sign:
            # The name is not shown: it may be a part of a password with a space.
            raise _SyntaxError(
                f'option {number} has no value; write name="…", with quotes around what has spaces'
            )
        options[key.text] = value.text
    raise _SyntaxError(f"the entry of {name} does not end with a semicolon")


def login_module(text: str, name: str) -> LoginModule:
    """Returns the only entry of a configuration, which must have the class `name`."""
    modules = parse_jaas(text)
    if len(modules) != 1:
        raise _invalid(f"it has {len(modules)} login modules, but one is expected")
    if modules[0].name != name:
        raise _invalid(f"the login module must be {name}, not {modules[0].name}")
    return modules[0]


def plain_users(text: str) -> dict[str, str]:
    """Returns the passwords by user name of the `user_<name>="…"` options of the PLAIN module."""
    options = login_module(text, PLAIN_LOGIN_MODULE).options
    return {
        key.removeprefix(_USER_OPTION): value
        for key, value in options.items()
        if key.startswith(_USER_OPTION)
    }

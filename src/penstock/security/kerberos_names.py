"""Names of Kerberos principals, and the rules that map them to user names (X2).

The rules are those of `sasl.kerberos.principal.to.local.rules`: `DEFAULT`, which takes the first
part of a name in the default realm, and `RULE:[n:format](match)s/from/to/g/L`. The first rule that
applies decides. In `format`, `$0` is the realm, `$1` and `$2` are the parts of the name.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.core.errors import ErrorCode, KafkaError

RULES_SETTING: Final = "sasl.kerberos.principal.to.local.rules"

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"RULE:\[(?P<parts>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d*)")
_REPLACEMENT: Final = re.compile(r"\\(?P<literal>.)|\$(?P<group>\d)|(?P<invalid>[\\$])", re.DOTALL)


class KerberosName(NamedTuple):
    """A principal: `primary/instance@REALM`, where the instance and the realm may be missing."""

    primary: str
    instance: str | None
    realm: str | None

    def __str__(self) -> str:
        instance = "" if self.instance is None else f"/{self.instance}"
        return self.primary + instance + ("" if self.realm is None else f"@{self.realm}")


def parse_kerberos_name(text: str) -> KerberosName:
    """Raises SASL_AUTHENTICATION_FAILED for a name with more parts than Kafka allows."""
    match = _NAME.fullmatch(text)
    if match is not None:
        return KerberosName(match[1], match[2], match[3])
    if "@" in text:
        raise KafkaError(
            ErrorCode.SASL_AUTHENTICATION_FAILED, f"malformed Kerberos principal {text!r}"
        )
    return KerberosName(text, None, None)


class _Rule(NamedTuple):
    text: str
    part_count: int
    format: str
    match: re.Pattern[str] | None
    source: re.Pattern[str] | None
    replacement: str
    replaces_all: bool
    case: str | None

    def apply(self, parts: tuple[str, ...]) -> str | None:
        if len(parts) - 1 != self.part_count:
            return None
        name = _PARAMETER.sub(lambda match: parts[int(match[1])], self.format)
        if self.match is not None and not self.match.fullmatch(name):
            return None
        if self.source is not None:
            name = self.source.sub(self.replacement, name, count=0 if self.replaces_all else 1)
        return name

    def change_case(self, name: str) -> str:
        if self.case is None:
            return name
        return name.lower() if self.case == "L" else name.upper()


class PrincipalRules:
    """Maps principals to user names."""

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        """Raises KafkaError that names the setting for a rule that is not valid."""
        texts = [rule.strip() for rule in rules]
        self._texts = [text for text in texts if text] or ["DEFAULT"]
        self._rules = [_parse_rule(text) for text in self._texts]
        self._default_realm = default_realm

    def user_name(self, principal: str) -> str:
        """Raises SASL_AUTHENTICATION_FAILED if no rule applies to a principal."""
        name = parse_kerberos_name(principal)
        if name.realm is None:
            return name.primary
        instance = () if name.instance is None else (name.instance,)
        parts = (name.realm, name.primary, *instance)
        for rule in self._rules:
            if rule is None:
                user = name.primary if name.realm == self._default_realm else None
            else:
                user = rule.apply(parts)
            if user is None:
                continue
            if "/" in user or "@" in user:
                raise KafkaError(
                    ErrorCode.SASL_AUTHENTICATION_FAILED,
                    f"{RULES_SETTING} map {principal} to {user}, which is not a simple name",
                )
            return user if rule is None else rule.change_case(user)
        raise KafkaError(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"no rule of {RULES_SETTING} applies to {principal}: {', '.join(self._texts)}",
        )


def rules_of_any_realm(rules: Iterable[str]) -> list[str]:
    """Returns the rules that do not look at the realm, `$0`, of a principal."""
    matches = ((text.strip(), _RULE.fullmatch(text.strip())) for text in rules)
    return [text for text, match in matches if match is not None and "$0" not in match["format"]]


def _parse_rule(text: str) -> _Rule | None:
    """Returns None for DEFAULT."""
    if text == "DEFAULT":
        return None
    match = _RULE.fullmatch(text)
    if match is None:
        raise _invalid(text, "it is neither DEFAULT nor RULE:[n:format](match)s/from/to/g/L")
    part_count = int(match["parts"])
    for parameter in _PARAMETER.finditer(match["format"]):
        if not parameter[1] or int(parameter[1]) > part_count:
            raise _invalid(text, f"{parameter[0]} is not one of $0 to ${part_count}")
    source = None if match["from"] is None else _compile(text, match["from"])
    return _Rule(
        text,
        part_count,
        match["format"],
        None if match["match"] is None else _compile(text, match["match"]),
        source,
        "" if source is None else _python_replacement(text, match["to"], source.groups),
        match["all"] is not None,
        match["case"],
    )


def _compile(rule: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise _invalid(rule, f"{pattern!r} is not a regular expression ({error})") from None


def _python_replacement(rule: str, text: str, group_count: int) -> str:
    """Returns the replacement with Python's references to groups instead of Java's `$1`."""
    replacement, at = "", 0
    for match in _REPLACEMENT.finditer(text):
        replacement += text[at : match.start()]
        at = match.end()
        if match["literal"] is not None:
            replacement += match["literal"].replace("\\", "\\\\")
        elif match["group"] is not None and int(match["group"]) <= group_count:
            replacement += rf"\g<{match['group']}>"
        else:
            raise _invalid(rule, f"{text!r} refers to a group that there is not")
    return replacement + text[at:]


def _invalid(rule: str, cause: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG,
        f"invalid rule {rule!r}: {cause}",
        subject=RULES_SETTING,
        remedy="correct the rule; rules are separated by commas",
    )

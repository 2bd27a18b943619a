"""Principals, and the mapping of certificate subjects to names (X2)."""

import re
from typing import NamedTuple

from penstock.core.errors import ErrorCode, KafkaError


class Principal(NamedTuple):
    """An identity, written `User:ann`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Parses `kind:name`; the name may contain colons."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"principal {text!r} has no colon; write it as Type:name, such as User:ann",
            )
        return cls(kind, name)


ANONYMOUS = Principal("User", "ANONYMOUS")

# One rule: DEFAULT, or RULE:pattern/replacement/[LU] where \/ does not end a part, or nothing.
_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_RULE_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_RULE_PARSER = re.compile(_RULE)
# What Java calls a reference in a replacement: an escaped character, a number or a group's name.
_REFERENCE = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|(\\$|\$)", re.DOTALL)


class _Rule:
    """Rewrites subjects that its pattern matches completely."""

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        # Java writes a named group without Python's P; its classes and its case are those of ASCII.
        self._pattern = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern), re.ASCII)
        self._replacement = replacement
        self._case = case
        self._check_replacement()

    def _check_replacement(self) -> None:
        for reference in _REFERENCE.finditer(self._replacement):
            name = reference[3]
            if reference[4] or (name and name not in self._pattern.groupindex):
                raise ValueError(f"the replacement {self._replacement!r} has a bad reference")

    def apply(self, subject: str) -> str | None:
        if self._pattern.fullmatch(subject) is None:
            return None
        name = self._pattern.sub(self._expand, subject)
        if self._case == "L":
            return name.lower()
        if self._case == "U":
            return name.upper()
        return name

    def _expand(self, match: re.Match[str]) -> str:
        groups = self._pattern.groups

        def value(reference: re.Match[str]) -> str:
            escaped, number, name, _ = reference.groups()
            if escaped is not None:
                return str(escaped)
            if name is not None:
                return match[name] or ""
            # As many digits as name a group; the others are text. If not even the first digit
            # names a group, all of it is text.
            digits = len(number)
            while digits > 1 and int(number[:digits]) > groups:
                digits -= 1
            if int(number[:digits]) > groups:
                return reference[0]
            return (match[int(number[:digits])] or "") + number[digits:]

        return _REFERENCE.sub(value, self._replacement)


class SslPrincipalMapper:
    """Applies `ssl.principal.mapping.rules`: the first rule that matches gives the name.

    Rules are separated by commas. `DEFAULT` uses the subject as it is. `RULE:pattern/replacement/`
    applies if the pattern matches completely, with `$1` … in the replacement for its groups; a
    final `L` or `U` changes the case.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._text = rules
        self._rules: list[_Rule | None] = []  # None is DEFAULT
        for split in _RULE_SPLITTER.finditer(rules.strip()):
            self._add(split[1])

    def _add(self, rule: str) -> None:
        parsed = _RULE_PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            raise self._invalid(rule, "write DEFAULT or RULE:pattern/replacement/[LU]")
        if parsed[1] is not None:
            self._rules.append(None)
        elif parsed[2] is not None:
            try:
                self._rules.append(_Rule(parsed[2], parsed[3], parsed[4]))
            except (re.error, ValueError) as error:
                raise self._invalid(rule, str(error)) from error

    @staticmethod
    def _invalid(rule: str, reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"ssl.principal.mapping.rules: invalid rule {rule!r}: {reason}",
        )

    def name(self, subject: str) -> str:
        """Returns the name for a distinguished name in RFC 2253 form.

        Raises KafkaError if no rule applies.
        """
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise KafkaError(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"no rule of ssl.principal.mapping.rules applies to {subject!r}; rules: {self._text}",
        )

"""Principals and `ssl.principal.mapping.rules` (X2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ErrorCode, KafkaError
from penstock.security.principal import ANONYMOUS, Principal, SslPrincipalMapper

SERVICE_RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "DEFAULT"
)


def test_a_principal_is_written_with_a_colon() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")


@given(st.text().filter(lambda kind: ":" not in kind), st.text())
def test_a_formatted_principal_is_parsed_to_the_same_value(kind: str, name: str) -> None:
    principal = Principal(kind, name)
    assert Principal.parse(str(principal)) == principal


def test_a_principal_without_a_colon_is_refused() -> None:
    with pytest.raises(KafkaError, match="User:ann") as raised:
        Principal.parse("ann")
    assert raised.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (SERVICE_RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (SERVICE_RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (SERVICE_RULES, "CN=Duke", "CN=Duke"),
        ("RULE:^cn=(.*?),ou=(.*?)$/$1@$2/U", "cn=duke,ou=sme", "DUKE@SME"),
        ("RULE:^CN=(.*?)$/$1@$4/", "CN=ann", "ann@$4"),
        ("RULE:^CN=(.*?)$/$12/", "CN=ann", "ann2"),
        ("RULE:CN=(.*?)/x$1/", "CN=ann", "xann"),
        ("RULE:.*/x/", "abc", "xx"),
        ("RULE:^CN=(?<n>.*?)$/${n}!/", "CN=ann", "ann!"),
        (r"RULE:^CN=(.*?)$/a\/b\$1$1/", "CN=ann", "a/b$1ann"),
        (" DEFAULT , ", "CN=q", "CN=q"),
        ("RULE:^CN=(.*)$/$0/L , DEFAULT", "CN=Q", "cn=q"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Duke\, Sr,OU=x", r"Duke\, Sr"),
        ("DEFAULT,RULE:a/b/", "a", "a"),
        (r"RULE:\/CN=(.*)/$1/", "/CN=z", "z"),
    ],
)
def test_mapped_names_are_the_same_as_kafkas(rules: str, subject: str, name: str) -> None:
    """SslPrincipalMapper of Kafka 4.3.1 returned the expected names."""
    assert SslPrincipalMapper(rules).name(subject) == name


@pytest.mark.parametrize(
    "rules",
    ["RULE:a", "foo", "RULE:a/b/LX", "RULE:a/b/ DEFAULT", "RULE:(/b/", "RULE:a/${x}/", "RULE:a/$/"],
)
def test_the_error_of_an_invalid_rule_has_the_rule(rules: str) -> None:
    with pytest.raises(KafkaError, match=r"ssl\.principal\.mapping\.rules: invalid rule") as raised:
        SslPrincipalMapper(rules)
    assert raised.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("rules", ["RULE:b/c/", ""])
def test_a_subject_without_a_matching_rule_is_refused(rules: str) -> None:
    with pytest.raises(KafkaError, match="no rule") as raised:
        SslPrincipalMapper(rules).name("a")
    assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED

"""JAAS files and the variable that names them (X2)."""

import pytest

from penstock.core.errors import KafkaError
from penstock.security.jaas import login_module, parse_jaas_file
from penstock.security.jaas_file import find_login, jaas_file_path, server_sections

KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
TEXT = f"""
// as in Kafka's documentation
KafkaServer {{
    {KRB5} required
    useKeyTab=true
    storeKey=true
    keyTab="/etc/kafka.keytab"
    principal="kafka/host@REALM";

    {PLAIN} required user_ann="a\\"b\\\\c";
}};
inside.KafkaServer {{
    {PLAIN} required user_bob="secret";
}};
KafkaClient {{ {KRB5} required useTicketCache=true; }};
"""
FILE = parse_jaas_file(TEXT, "the file")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("", None),
        ("-Xmx1g -Djava.security.krb5.conf=/etc/krb5.conf", None),
        ("-Djava.security.auth.login.config=/jaas.conf -Xmx1g", "/jaas.conf"),
        ("'-Djava.security.auth.login.config=/a b/jaas.conf'", "/a b/jaas.conf"),
        ("-Djava.security.auth.login.config==file:/jaas.conf", "/jaas.conf"),
    ],
)
def test_kafka_opts_name_the_file(options: str, path: str | None) -> None:
    assert jaas_file_path({"KAFKA_OPTS": options}) == path
    assert jaas_file_path({}) is None


def test_an_entry_is_found_by_section_and_mechanism() -> None:
    server = find_login(FILE, server_sections("OUTSIDE"), "GSSAPI")
    assert server is not None
    assert login_module(server, KRB5).options["keyTab"] == "/etc/kafka.keytab"
    plain = find_login(FILE, server_sections("OUTSIDE"), "PLAIN")
    assert plain is not None
    assert login_module(plain, PLAIN).options == {"user_ann": 'a"b\\c'}
    inside = find_login(FILE, server_sections("INSIDE"), "PLAIN")
    assert inside == f'{PLAIN} required user_bob="secret";'
    # A section for the listener replaces the general one, as in Kafka.
    assert find_login(FILE, server_sections("INSIDE"), "GSSAPI") is None
    assert find_login(FILE, ("KafkaClient",), "SCRAM-SHA-256") is None
    assert find_login(FILE, ("Client",), "GSSAPI") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"KafkaServer {{ {PLAIN} required;", "the section KafkaServer does not end with"),
        (
            f"KafkaServer {{ {PLAIN} required; }}",
            "the section KafkaServer is empty or does not end with",
        ),
        (f"{PLAIN} required;", "expected the name of a section"),
        ("KafkaServer { ; };", "expected the class of a login module"),
        (f"KafkaServer {{ {PLAIN} required user=}};", "option 1 has no value"),
    ],
)
def test_invalid_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(KafkaError, match=message):
        parse_jaas_file(text, "the file")


def test_open_quotes_in_the_variable_are_refused() -> None:
    with pytest.raises(KafkaError, match="KAFKA_OPTS: No closing quotation; correct its quotes"):
        jaas_file_path({"KAFKA_OPTS": "'-X"})

"""Items as lines for people and as JSON."""

import json

from penstock.cli.dump.items import ENTRY, FILE, RECORD, SUMMARY, Item, note, problem
from penstock.cli.dump.render import to_json, to_text
from penstock.cli.output import escape

PATH = "/data/orders-0/00000000000000000000.log"


def bracket(text: str, role: str) -> str:
    return f"<{role} {text}>"


def test_fields_are_names_and_values() -> None:
    item = Item(ENTRY, {"offset": 5, "isControl": False, "deleteHorizonMs": None, "topic": "a b"})
    assert to_text(PATH, item) == "offset: 5 isControl: false deleteHorizonMs: none topic: a b"


def test_a_timestamp_is_called_after_its_type_as_kafka_does() -> None:
    item = Item(RECORD, {"offset": 5, "timestampType": "LogAppendTime", "timestamp": 17})
    assert to_text(PATH, item) == "| offset: 5 LogAppendTime: 17"
    assert json.loads(to_json(PATH, item)) == {
        "file": PATH,
        "kind": "record",
        "offset": 5,
        "timestampType": "LogAppendTime",
        "timestamp": 17,
    }


def test_kinds_look_different() -> None:
    assert to_text(PATH, Item(SUMMARY, {"batches": 2})) == "= batches: 2"
    assert to_text(PATH, Item(FILE, {"type": "log", "size": 9})) == f"Dumping {PATH} size: 9"
    assert to_text(PATH, note("stopped")) == "# stopped"
    assert to_text(PATH, problem("broken", position=7)) == "! broken position: 7"


def test_a_style_colours_names_and_whole_lines_of_problems() -> None:
    assert to_text(PATH, Item(ENTRY, {"offset": 5}), bracket) == "<name offset:> 5"
    assert to_text(PATH, problem("broken", position=7), bracket) == (
        "<problem ! broken position: 7>"
    )


def test_keys_and_values_that_are_null_are_left_out_of_text_and_null_in_json() -> None:
    item = Item(RECORD, {"key": None, "payload": b"v"})
    assert to_text(PATH, item) == "| payload: v"
    assert json.loads(to_json(PATH, item))["key"] is None


def test_bytes_are_text_where_they_are_utf8() -> None:
    item = Item(RECORD, {"key": "zoë".encode(), "payload": b"\xff\x00"})
    assert to_text(PATH, item) == "| key: zoë payload: \\xff\\x00"
    line = to_json(PATH, item)
    assert line.isascii()
    loads = json.loads(line)
    assert loads["key"] == "zoë"
    assert loads["payload"] == {"base64": "/wA="}


def test_lists_and_what_decoders_say() -> None:
    item = Item(
        RECORD,
        {
            "headerKeys": ["a", "b"],
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
            "key": {"type": 1, "data": {"group": "g"}},
        },
    )
    assert to_text(PATH, item) == (
        '| headerKeys: [a,b] headers: [{"key":"a","value":"1"},{"key":"b","value":null}] '
        'key: {"type":1,"data":{"group":"g"}}'
    )


def test_nothing_in_a_record_reaches_the_terminal_as_a_command() -> None:
    """A value with escape codes or line ends cannot clear a screen or fake a line."""
    item = Item(RECORD, {"payload": b"a\x1b[2J\nb\rc\t\xc2\x9b"})
    assert to_text(PATH, item) == "| payload: a\\x1b[2J\\nb\\rc\\t\\x9b"
    assert escape("plain") == "plain"
    assert escape("un\udce9") == "un\\udce9"


def test_one_json_object_is_one_line() -> None:
    assert "\n" not in to_json(PATH, Item(RECORD, {"payload": b"a\nb\xe2\x80\xa8"}))

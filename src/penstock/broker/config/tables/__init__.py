"""Tables of Kafka's settings: names, types, defaults and valid values, as text parsed on demand.

Each setting has two lines: `name TYPE flags valid default`, and its documentation. The default is
the rest of the line; `null` means that there is none.

Flags: the importance `H`, `M` or `L`; how it can change while the broker runs, `c` for all brokers
or a single one, `b` for a single broker only, `-` not at all; `*` if it has an effect, `-` if it is
only accepted because Kafka's files contain it; `i` for an internal setting of Kafka; `o` for one
that Kafka 4 no longer has.

Valid values: `.` for any, `1..9` for a range (`1..` without an upper limit), `|-1` for another
valid number, `{a,b}` for one of these, `~` before it to ignore case, `+` for not empty, or the name
of a function in `penstock.broker.config.validators`.
"""

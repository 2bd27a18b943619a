"""Kafka's settings: names, types, defaults and limits, as text that is read when it is needed.

Two lines for each setting: `name TYPE flags valid default`, and what it does. The default is the
rest of the line, `null` where there is none.

Flags: importance `H`, `M` or `L`; how it changes while the broker runs, `c` for the cluster or a
broker, `b` for a broker only, `-` not at all; `*` where it does something here, `-` where it is
only accepted because Kafka's files contain it; `i` for a setting that Kafka keeps to itself, `o`
for one that Kafka 4 no longer has.

Valid values: `.` for any, `1..9` for a range (`1..` without an upper limit), `|-1` for a further
number, `{a,b}` for one of these, `~` before it for upper or lower case, `+` for not empty, or the
name of a check in `penstock.broker.config.validators`.
"""

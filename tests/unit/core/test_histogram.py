"""Histograms count values by their upper bounds."""

from penstock.core.histogram import Histogram


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 9.0):
        histogram.record(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.sum) == (5, 13.5)


def test_a_value_may_stand_for_others() -> None:
    histogram = Histogram((1.0,))
    histogram.record(0.5, 16)
    assert histogram.counts == [16, 0]
    assert histogram.sum == 8.0

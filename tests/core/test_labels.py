"""Labels: one representation of rewards and their validity."""

import numpy as np
import pytest

from robo_rl.errors import InvalidSetting
from robo_rl.types import Labels


@pytest.mark.parametrize(
    ("values", "valid", "words"),
    [
        (np.zeros(3, np.float32), np.ones(2, np.bool_), "Values and validity of labels differ"),
        (np.zeros((3, 1), np.float32), np.ones((3, 1), np.bool_), r"got: +\(3, 1\)"),
        (np.zeros(3, np.int64), np.ones(3, np.bool_), "wrong type(.|\n)*int64 and bool"),
        (np.zeros(3, np.float32), np.ones(3, np.int8), "wrong type(.|\n)*float32 and int8"),
        (np.array([1, np.nan], np.float32), np.array([True, True]), "A valid label is not finite"),
        (np.array([np.inf]), np.array([True]), "A valid label is not finite"),
    ],
)
def test_labels_refuse_what_are_none(values, valid, words):
    with pytest.raises(InvalidSetting, match=words):
        Labels(values, valid)


def test_labels_of_numbers_miss_what_is_not_finite():
    labels = Labels.finite([1.0, np.nan, -np.inf, 1e39, 2.0], np.array([True, True, True, True, False]))
    assert labels.valid.tolist() == [True, False, False, False, False]
    assert labels.values.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0] and labels.values.dtype == np.float32
    assert np.isnan(labels.or_nan[1:]).all() and labels.or_nan[0] == 1.0


def test_missing_labels_may_hold_anything():
    assert np.isnan(Labels(np.array([np.nan, 3.0]), np.array([False, True])).or_nan).tolist() == [True, False]
    assert len(Labels.missing(4)) == 4 and not Labels.missing(4).valid.any()

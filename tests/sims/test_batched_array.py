"""Code for one environment gives the same bits when it runs over arrays of all."""

import numpy as np
import pytest
from dm_control.utils import rewards

from robo_sims.dm_control_tasks.batched_array import batched, rows

COUNT = 2000
RANDOM = np.random.default_rng(0)
NUMBERS, VECTORS, OTHERS = RANDOM.normal(size=COUNT), RANDOM.normal(size=(COUNT, 3)), RANDOM.normal(size=(COUNT, 3))
LONG, MATRICES, TALL = RANDOM.normal(size=(COUNT, 21)), RANDOM.normal(size=(COUNT, 9)), RANDOM.normal(size=(COUNT, 4, 3))

SAME = {
    "norm": (np.linalg.norm, VECTORS),
    "norm of a matrix": (lambda matrix: np.linalg.norm(matrix[:1]), TALL),
    "sum": (lambda vector: vector.sum(), LONG),
    "mean": (lambda vector: vector.mean(), LONG),
    "min": (lambda vector: vector.min(), LONG),
    "prod": (np.prod, LONG),
    "power of a number": (lambda number: (number * 1.1) ** 2, NUMBERS),
    "power of a vector": (lambda vector: vector**2, VECTORS),
    "smooth reward": (lambda number: rewards.tolerance(number, margin=2), NUMBERS),
    "smooth rewards": (lambda vector: rewards.tolerance(vector, (-0.1, 0.1), margin=2).mean(), LONG),
    "vector times matrix": (lambda vector, matrix: vector.dot(matrix.reshape(3, 3)), VECTORS, MATRICES),
    "matrix times matrix": (lambda tall, matrix: tall.dot(matrix.reshape((-1, 3))).ravel(), TALL, MATRICES),
    "beside": (lambda number, vector: np.hstack((number, vector)), NUMBERS, VECTORS),
    "matrices beside": (lambda one, other: np.hstack([one, other[:, 1:]]), TALL, TALL),
    "above": (lambda one, other: np.vstack((one, other)).T, VECTORS, OTHERS),
    "one after the other": (lambda one, other: np.concatenate((one, other)), VECTORS, OTHERS),
    "difference": (lambda tall: np.diff(tall[[2, 0]], axis=0).flatten(), TALL),
    "choice": (lambda vector: np.where(vector == -1.0, 1.0, np.tanh(vector)), VECTORS),
}


@pytest.mark.parametrize(("function", "arguments"), [(f, a) for f, *a in SAME.values()], ids=SAME)
def test_every_environment_gets_the_bits_of_one(function, arguments):
    together = rows(function(*(batched(argument) for argument in arguments)))
    alone = np.array([function(*environment) for environment in zip(*arguments, strict=True)])
    assert together.shape == alone.shape
    assert together.tobytes() == alone.tobytes()


def test_a_function_that_would_mix_environments_is_refused():
    with pytest.raises(TypeError, match=r"no implementation found for 'numpy\.median'"):
        np.median(batched(VECTORS))
    with pytest.raises(TypeError, match="axis"):
        batched(VECTORS).mean(axis=0)

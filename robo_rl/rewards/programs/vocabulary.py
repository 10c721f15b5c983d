"""Functions that a reward program may call, listed one by one; numpy as a module is never available to it.

A function that is not listed does not exist for a program. The same holds for the keywords `out`, `where`, `order`, `casting`,
`subok`, and for their positions in a call (the second argument of `np.sqrt` is its output). Functions that depend on the
position of a row among the others (`arange`), draw random numbers (`random`), or turn missing numbers into numbers
(`nan_to_num`, `nanmean`, `fmin`) are left out on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """How a listed function may be called by a reward program: numbers of positional arguments, and keywords."""

    least: int = 1
    """Smallest number of positional arguments."""
    most: int = 1
    """Largest number of positional arguments; later ones of numpy's functions are outputs or types."""
    keywords: frozenset[str] = frozenset()
    """Names of allowed keyword arguments."""


def _calls(names: str, least: int = 1, most: int = 1, keywords: str = "") -> dict[str, Call]:
    return {name: Call(least, most, frozenset(keywords.split())) for name in names.split()}


NUMPY = {
    **_calls("abs absolute fabs sqrt cbrt square exp exp2 expm1 log log2 log10 log1p negative sign reciprocal"),
    **_calls("sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh deg2rad rad2deg degrees radians"),
    **_calls("floor ceil rint trunc isfinite isnan isinf logical_not hstack vstack column_stack atleast_1d atleast_2d"),
    **_calls("shape ndim ravel copy float32 float64 int64 bool_"),
    **_calls("add subtract multiply divide true_divide floor_divide mod remainder power minimum maximum arctan2", 2, 2),
    **_calls("hypot heaviside logaddexp copysign greater greater_equal less less_equal equal not_equal", 2, 2),
    **_calls("logical_and logical_or logical_xor matmul dot outer broadcast_to", 2, 2),
    **_calls("sum mean min max amin amax prod any all argmin argmax median", 1, 2, "axis keepdims"),
    **_calls("std var", 1, 2, "axis keepdims ddof"),
    **_calls("cumsum cumprod sort", 1, 2, "axis"),
    **_calls("stack concatenate squeeze size", 1, 2, "axis"),
    **_calls("expand_dims", 1, 2, "axis"),
    **_calls("diff", 1, 3, "n axis"),
    **_calls("transpose", 1, 2, "axes"),
    **_calls("reshape", 2, 2),
    **_calls("swapaxes where", 3, 3),
    **_calls("clip", 1, 3, "a_min a_max min max"),
    **_calls("cross", 2, 2, "axis"),
    **_calls("einsum", 2, 4),
    **_calls("zeros ones zeros_like ones_like array asarray", 1, 1, "dtype"),
    **_calls("full full_like", 2, 2, "dtype"),
    **_calls("select", 2, 3, "default"),
    **_calls("round around", 1, 2, "decimals"),
    **_calls("isclose", 2, 4, "rtol atol"),
    **_calls("interp", 3, 3, "left right"),
    **_calls("linalg.norm", 1, 3, "ord axis keepdims"),
}
"""Name of a function below `np` -> how it may be called."""

MATH = _calls("sqrt exp log log1p sin cos tan tanh asin acos atan radians degrees fabs") | _calls("atan2 hypot", 2, 2)
"""Name below `math` -> allowed calls; for single numbers."""

BUILTINS = _calls("abs len float int bool round") | _calls("min max", 2, 8)
"""Functions of Python itself; all but `abs` and `len` are for single numbers."""

GEOMETRY = {
    **_calls("quat_inv quat_to_matrix point_cloud_centre"),
    **_calls("quat_mul quat_angle quat_rotate point_cloud_min_dist", 2, 2),
    **_calls("transform_points", 3, 3),
}
"""Functions of robo_rl.rewards.programs.geometry, so that a program needs no scipy."""

FUNCTIONS: dict[str, Call] = {
    **{f"np.{name}": call for name, call in NUMPY.items()},
    **{f"math.{name}": call for name, call in MATH.items()},
    **BUILTINS,
    **GEOMETRY,
}
"""Every function that a reward program may call, as the program writes it -> allowed calls."""

CONSTANTS = ("np.pi", "np.e", "np.inf", "np.newaxis", "math.pi", "math.e", "math.tau", "math.inf")
TYPES = ("float", "int", "bool", "np.float32", "np.float64", "np.int32", "np.int64", "np.bool_")
"""Types that a program may pass as `dtype=` and to `astype`."""

SAME: tuple[str, ...] = ("sum", "mean", "std", "var", "min", "max", "any", "all", "prod", "argmin", "argmax")
"""Methods of arrays for which numpy has a function of the same name."""
SAME += ("cumsum", "cumprod", "clip", "dot", "reshape", "squeeze", "transpose", "round", "swapaxes", "copy", "ravel")
"""Methods of arrays that numpy has as functions of the same name."""
METHODS = {name: f"np.{name}" for name in SAME} | {"flatten": "np.ravel", "astype": "np.array"}
"""Method of an array -> function that replaces it: `x.sum(axis=1)` becomes `np.sum(x, axis=1)`."""

PROPERTIES = {"shape": "np.shape", "ndim": "np.ndim", "size": "np.size", "T": "np.transpose"}
"""Attribute of an array -> function that replaces it."""


def mangled(name: str) -> str:
    """Return the name by which checked code calls an allowed function; it begins with "_", which programs cannot write."""
    return "_" + name.replace(".", "_")

"""What the grammar of reward programs reads out of answers, and what it says of those that it refuses."""

import json
import time

import numpy as np
import pytest

from robo_rl.errors import InvalidProgram
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.vocabulary import FUNCTIONS
from robo_rl.rewards.programs.worker import loaded

PROGRAM = '''
import numpy as np
from typing import Tuple, Dict

def reward(batch: Dict[str, np.ndarray]) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
    """Bring the tool to the cube."""
    apart = batch["tool"] - batch["cube"]  # [m]
    distance = np.linalg.norm(apart, axis=1)
    effort: np.ndarray = (batch["action"] ** 2).sum(axis=-1)
    near = (distance < 0.05) & (apart[:, 2] > 0)
    total = -distance
    total += np.where(near, 1.0, 0.0) - 0.01 * effort
    for power in range(1, 3):
        total = total - 0.001 * power * effort
    return total, {"distance": -distance, "near": near.astype(float)}
'''
BATCH = {"tool": np.array([[0, 0, 0.01], [1, 2, 2.0]]), "cube": np.zeros((2, 3)), "action": np.ones((2, 4))}


def answered(program: str) -> str:
    return f"I suggest this:\n\n```python\n{program}\n```\nIt rewards nearness."


def refusal(text: str, columns=None) -> InvalidProgram:
    with pytest.raises(InvalidProgram) as refused:
        RewardProgram.parse(text, columns)
    return refused.value


def of(line: str) -> str:
    return f'def reward(batch):\n    x = batch["x"]\n    {line}\n    return x, {{}}'


def value(expression: str, **columns: np.ndarray) -> np.ndarray:
    return loaded(RewardProgram.parse(f"def reward(batch):\n    return {expression}, {{}}").code)(columns)[0]


# reading


def test_program_is_extracted_checked_and_evaluated():
    program = RewardProgram.parse(answered(PROGRAM), {"tool", "cube", "action", "goal"})
    assert program.terms == ("distance", "near") and program.columns == ("tool", "cube", "action")
    total, (distance, near) = loaded(program.code)(BATCH)
    np.testing.assert_allclose(total, [-0.01 + 1 - 0.04 - 0.012, -3 - 0.04 - 0.012])
    np.testing.assert_allclose(distance, [-0.01, -3])
    assert near.tolist() == [1.0, 0.0]
    assert program.where(4) == 'line 8, `effort: np.ndarray = (batch["action"] ** 2).sum(axis=-1)`'


@pytest.mark.parametrize(
    "text", [PROGRAM, answered(PROGRAM), answered(PROGRAM).replace("```python", "```"), "```py\n" + PROGRAM + "\n```"]
)
def test_bare_or_fenced_is_the_same(text):
    assert RewardProgram.parse(text).hash == RewardProgram.parse(PROGRAM).hash


def test_identity_ignores_spelling_but_not_meaning():
    same = PROGRAM.replace('(batch["action"] ** 2).sum(axis=-1)', "np.sum( batch['action']**2,axis = -1 )").replace(
        "  # [m]", ""
    )
    assert RewardProgram.parse(same).hash == RewardProgram.parse(PROGRAM).hash
    for old, new in [("0.05", "0.06"), ('"near"', '"close"'), ("axis=-1", "axis=1")]:
        assert RewardProgram.parse(PROGRAM.replace(old, new)).hash != RewardProgram.parse(PROGRAM).hash


def test_other_blocks_do_not_disturb_unless_they_are_programs():
    data = "```json\n{}\n```\n"
    assert RewardProgram.parse(data + answered(PROGRAM)).terms
    assert refusal(answered(PROGRAM) + "\n" + answered(PROGRAM)).status == "several programs"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("", "no code", "nothing"),
        ("I cannot help with that.", "no code", "'I cannot help with that.'"),
        ("```python\n```", "no code", "empty"),
        ("```python\n" + PROGRAM, "no code", "the answer was cut"),
        (answered("def reward(batch):\n    return ("), "syntax", "Line 2 is no Python"),
        ("Here:\ndef reward(batch):\n    return 1, {}", "syntax", "Line 1 is no Python"),
        (answered("def reward(batch):\n    x = 1\n"), "signature", "`reward` returns nothing"),
        (answered("def compute(batch):\n    return 1.0, {}"), "signature", "def compute(batch)"),
        (answered("def reward(self, batch):\n    return 1.0, {}"), "signature", "no other arguments"),
        (answered("def reward(batch):\n    return batch['x']"), "signature", "returns otherwise"),
        (answered("def reward(batch):\n    return batch['x'], {'a b': 1.0}"), "forbidden", "name of a term"),
        (answered("def reward(batch):\n    return batch['x'], {'a': 1.0, 'a': 2.0}"), "forbidden", "repeat"),
        (answered("x = 1\ndef reward(batch):\n    return batch['x'], {}"), "forbidden", "outside the function"),
        (
            answered("def one():\n    return 1\ndef reward(batch):\n    return batch['x'], {}"),
            "forbidden",
            "more than one function",
        ),
    ],
)
def test_answers_without_one_program_say_so(text, status, words):
    refused = refusal(text)
    assert refused.status == status and words in str(refused)


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 99_000,
        " " * 99_000,
        "`" * 99_000,
        "```\n" * 20_000,
        "> " * 49_000,
        of("x = " + "(" * 199),
        of("x = " + "[x for x in " * 90),
    ],
)
def test_hostile_answers_are_refused_soon(text):
    started = time.perf_counter()
    refusal(text)
    assert time.perf_counter() - started < 5


def test_half_a_character_in_a_name_can_be_shown():
    assert "\\ud800" in str(refusal(of(r'x = batch["\ud800"]'), ["x"])).encode().decode()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("if x > 0:\n        x = 1.0", "use np.where(condition, a, b)"),
        ("x = 1.0 if x > 0 else 2.0", "use np.where(condition, a, b)"),
        ("x = x > 0 and x < 1", "use np.logical_and(a, b)"),
        ("x = not x", "use np.logical_not(a)"),
        ("x = 0 < x < 1", "np.logical_and(a < b, b < c)"),
        ("x[0] = 1", "Only plain names take values"),
        ("x = [v for v in x]", "np.stack puts columns together"),
        ("x = scipy.linalg.norm(x)", "The function `scipy.linalg.norm` is not there"),
        ("x = np.nan_to_num(x)", "`np.nan_to_num` is not there"),
        ("x = np.linalg.nrm(x)", "did you mean np.linalg.norm"),
        ("x = x.tolist()", "The method 'tolist' is not there"),
        ("x = x.dtype", "The attribute 'dtype' is not there"),
        ("x = y", "The name 'y' is not known here"),
        ("x = np.sqrt(x, x)", "1 by position; no `out`"),
        ("x = np.sum(x, out=x)", "takes no 'out' here"),
        ("x = np.zeros(3, dtype=object)", "That type is not there"),
        ("x = x ** x", "The exponent is another"),
        ("x = 2 ** 9", "at most 8 in size"),
        ("import scipy", "what is there already: np, math"),
        ("print(x)", "`Expr` has no place"),
        ("x = batch['y' + 'z']", "by something else than its name"),
        ("min = 1", "The name 'min' cannot take a value here"),
        ("return x, {}\n    x = 1", "This comes after `return`"),
        ("terms = {'a': x}\n    x = terms", "used before `return`"),
    ],
)
def test_a_refusal_names_line_and_what_to_write_instead(line, words):
    refused = refusal(of(line))
    assert words in str(refused) and "Line " in str(refused)


def test_a_column_that_is_not_there_is_named_with_its_nearest():
    refused = refusal('def reward(batch):\n    return batch["cube_positon"], {}', ["cube_position", "action"])
    assert refused.status == "unknown column"
    assert "allowed: cube_position, action; did you mean cube_position?" in str(refused)


# meaning


def test_methods_and_properties_mean_the_functions():
    x = np.arange(6.0).reshape(2, 3)
    assert value("batch['x'].sum(axis=1)", x=x).tolist() == [3, 12]
    assert value("batch['x'].T.max(0)", x=x).tolist() == [2, 5]
    assert value("batch['x'].reshape(-1, 2)[:, 0]", x=x).tolist() == [0, 2, 4]
    assert value("batch['x'].clip(1, 2).astype(int).sum(axis=1)", x=x).tolist() == [4, 6]
    assert value("np.zeros(batch['x'].shape[0])", x=x).tolist() == [0, 0]
    assert value("-batch['x'][..., -1] ** 2", x=x).tolist() == [-4, -25]
    assert value("np.einsum('ni,ni->n', batch['x'], batch['x'])", x=x).tolist() == [5, 50]


def test_an_input_is_never_changed_in_place():
    program = RewardProgram.parse('def reward(batch):\n    x = batch["x"]\n    x += 1.0\n    x *= 2.0\n    return x, {}')
    x = np.zeros(2)
    x.flags.writeable = False
    assert loaded(program.code)({"x": x})[0].tolist() == [2, 2]


def test_every_function_that_a_program_may_call_is_there():
    names = [name for name in FUNCTIONS if name not in {"np.einsum", "np.power"}]
    for name in names:
        arguments = ", ".join(["batch['x']"] * FUNCTIONS[name].least)
        assert callable(loaded(RewardProgram.parse(f"def reward(batch):\n    return {name}({arguments}), {{}}").code))


# files


def test_a_saved_program_is_read_again(tmp_path):
    program = RewardProgram.parse(answered(PROGRAM), provenance={"model": "by hand", "parents": ["abc"]})
    path = program.save(tmp_path)
    assert path.name == f"{program.hash[:12]}.py" and RewardProgram.read(path) == program
    assert program.save(tmp_path / "best.py") == tmp_path / "best.py"
    assert json.loads((tmp_path / "best.json").read_text())["provenance"]["model"] == "by hand"
    (tmp_path / "best.py").write_text(PROGRAM.replace("0.05", "0.5"))
    with pytest.raises(InvalidProgram, match="is about another program"):
        RewardProgram.read(tmp_path / "best.py")
    (tmp_path / "best.json").unlink()
    assert dict(RewardProgram.read(tmp_path / "best.py").provenance) == {}


def test_a_file_that_is_none_says_so(tmp_path):
    with pytest.raises(InvalidProgram, match=r"gone\.py cannot be read"):
        RewardProgram.read(tmp_path / "gone.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidProgram, match="cannot be read"):
        RewardProgram.read(tmp_path / "binary.py")

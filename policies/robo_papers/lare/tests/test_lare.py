"""Latent rewards: what is asked, what is tried, what is refused, and what a run makes of the factors."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

from factories import axes, make_spec
from robo_papers.lare.decoder import DecoderConfig
from robo_papers.lare.latent_code import LatentCode, LatentCodeConfig
from robo_papers.lare.reward import LatentReward, ProgramFactors
from robo_rl.errors import InvalidProgram, InvalidSetting, RewardUnavailable
from robo_rl.rewards.chat.log import read_log
from robo_rl.rewards.chat.opening import language_model
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.runner import ProgramRunner, end_workers
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.spec.environment import ArraySpec, ObservationSpec

REACHER = make_spec(
    "test/Reacher",
    ArraySpec("joint_velocity", (2,), unit="rad/s"),
    ArraySpec("target_to_fingertip", (2,), unit="m", role="goal"),
    action=axes("shoulder", "elbow", unit="N m", mode="joint_torque", control_period=0.02),
    instruction="move the fingertip to the target",
)
VIEW = EnvAbstraction.of(REACHER)


def steps(count=40):
    random = np.random.default_rng(0)
    return {name: random.normal(size=(count, *column.shape)) * 0.3 for name, column in VIEW.columns.items()}


@pytest.fixture(autouse=True)
def no_worker_is_left():
    yield
    end_workers()


def pack(tmp_path, **replies) -> str:
    facts = {"pack": 1, "made": "by hand", "author": "a test", "about": "a test", "method": "lare", "task": "test/Reacher"}
    path = tmp_path / "pack.yaml"
    path.write_text(yaml.safe_dump(facts | {"replies": {"factors": [], "summary": [], "mend": []} | replies}))
    return f"pack:{path}"


def program(body: str) -> str:
    return f"Understand: it moves.\n\n```python\ndef reward(batch):\n    {body}\n```\n"


GOOD = program('near = -np.sum(batch["target_to_fingertip"] ** 2, axis=1)\n    return near, {"near": near}')
WIDE = program('near = -(batch["target_to_fingertip"] ** 2)\n    return near[:, 0], {"near": near}')
UNDEFINED = program('far = np.log(batch["target_to_fingertip"][:, 0])\n    return far, {"far": far}')
REFUSED = {"text": "I cannot help with that.", "status": "refused"}


def written(llm, *, task="move there", config=None, heard=lambda attempt: None):
    return LatentCode(language_model(llm), VIEW, steps(), config or LatentCodeConfig()).write(task, heard)


@pytest.mark.slow
def test_the_pack_is_mended_until_it_passes():
    heard = []
    found = written("pack:lare-reacher", task=REACHER.instruction, heard=heard.append)
    first, second, third = heard
    assert "depends on the other rows" in first.findings and "Factors of a step depend on the other steps" in first.findings
    assert "the term 'effort' has shape" in second.findings and third.findings == ""
    assert found == third.program and set(found.terms) == {"distance", "approach", "near", "effort", "speed"}
    assert found.provenance["model"] == "made by hand" and found.provenance["purpose"] == "mend"
    untried = written("pack:lare-reacher", config=LatentCodeConfig(rounds=0))
    assert untried.hash == first.program.hash, "without self-verification the summary is taken as it is"


def test_prompt_has_action_and_columns_but_no_reward(tmp_path):
    with language_model("pack:lare-reacher", log=tmp_path / "calls.jsonl") as model:
        LatentCode(model, VIEW, steps(), LatentCodeConfig(rounds=0)).write(REACHER.instruction)
    records, _ = read_log(tmp_path / "calls.jsonl")
    asked = {record["purpose"]: record for record in records}
    words = asked["factors"]["messages"][-1]["text"]
    assert REACHER.instruction in words and all(f"    {name}: " in words for name in REACHER.observation)
    assert "action[:, 0] shoulder: -1 to 1 N m" in words and "action[:, 1] elbow" in words
    assert asked["summary"]["messages"][-1]["text"].count("--- Answer") == 4, "the refused one is left out"
    assert (asked["factors"]["temperature"], asked["summary"]["temperature"]) == (1.0, 0.3)
    assert sum(record["purpose"] == "factors" for record in records) == 5


def test_a_set_of_candidates_without_an_answer_is_an_error(tmp_path):
    llm = pack(tmp_path, factors=[[REFUSED, REFUSED, {"text": "def rew", "status": "cut"}]])
    with pytest.raises(RewardUnavailable, match=r"None of 3 candidates for 'move there'(.|\n)*2 refused, 1 cut"):
        written(llm, config=LatentCodeConfig(candidates=3))


@pytest.mark.slow
def test_no_valid_factor_is_an_error(tmp_path):
    heard = []
    mends = [[UNDEFINED], ["There is nothing to change."], [REFUSED], [WIDE]]
    llm = pack(tmp_path, factors=[[GOOD] * 2], summary=[[WIDE]], mend=mends)
    with pytest.raises(RewardUnavailable, match=r"No factors for 'move there'(.|\n)*shape(.|\n)*5 rounds") as error:
        written(llm, config=LatentCodeConfig(candidates=2), heard=heard.append)
    assert [attempt.program is None for attempt in heard] == [False, False, True, True, False]
    assert (
        "Rewards or terms are not finite. got: 2" in heard[1].findings
        and "There is no program in the answer" in heard[2].findings
    )
    assert "no complete answer (refused)" in heard[3].findings and "--settings.rounds" in str(error.value)
    nothing = program('return np.zeros(len(batch["action"])) + batch["action"][:, 0], {}')
    with pytest.raises(RewardUnavailable):
        written(pack(tmp_path, factors=[[nothing]], mend=[]), config=LatentCodeConfig(candidates=1, rounds=1))


@pytest.mark.slow
def test_one_candidate_is_tried_as_it_is(tmp_path):
    heard = []
    llm = pack(tmp_path, factors=[[WIDE]], mend=[[GOOD]])
    found = written(llm, config=LatentCodeConfig(candidates=1), heard=heard.append)
    assert found.terms == ("near",) and len(heard) == 2
    with pytest.raises(InvalidSetting, match=r"'rounds' is out of range(.|\n)*0 or more"):
        LatentCodeConfig(rounds=-1)


def kept(folder, body, name="program") -> str:
    return str(RewardProgram.parse(program(body)).save(folder / f"{name}.py"))


FACTORS = 'a = batch["joint_velocity"][:, 0]\n    b = batch["action"][:, 1]\n    '


def test_the_order_of_factors_in_a_program_changes_nothing(tmp_path):
    paths = [
        kept(tmp_path, FACTORS + f"return a, {terms}", name)
        for name, terms in (("one", '{"a": a, "b": b}'), ("other", '{"b": b, "a": a}'))
    ]
    random = np.random.default_rng(0)
    observations = {name: random.normal(size=(6, 2)).astype(np.float32) for name in REACHER.observation}
    actions = random.uniform(-1, 1, (5, 2)).astype(np.float32)
    found = [ProgramFactors(ProgramRunner(path), VIEW).of(observations, actions) for path in paths]
    assert (found[0] == found[1]).all() and found[0].dtype == np.float32
    assert np.allclose(found[0], np.stack([observations["joint_velocity"][1:, 0], actions[:, 1]], 1))


def test_a_step_without_finite_factors_leaves_its_episode_out(tmp_path):
    path = kept(tmp_path, 'a = np.sqrt(batch["joint_velocity"][:, 0])\n    return a, {"a": a}')
    running = LatentReward(path, decoder=DecoderConfig(hidden=(4,))).online(REACHER, weight=1.0, discount=None).running(1)
    running.relabelling.reserve(100)
    for first in (1.0, -1.0, 2.0):
        running.begin(0, {name: np.full(2, first, np.float32) for name in REACHER.observation}, None)
        for step in range(4):
            after = {name: np.full(2, first + step, np.float32) for name in REACHER.observation}
            running.add(0, after, action=np.zeros(2, np.float32), reward=1.0, terminated=False, truncated=step == 3)
    found = running.score()
    places, known, ends = found.labels.values, found.labels.valid, found.ends
    assert known.tolist() == [True] * 4 + [False] * 4 + [True] * 4 and not ends.any() and len(running.relabelling.memory) == 2
    assert np.allclose(running.relabelling.memory.inputs(places[known].astype(int))[:, 0] ** 2, [1, 2, 3, 4, 2, 3, 4, 5])


def test_a_reward_is_another_with_another_program_or_setting(tmp_path):
    path, other = kept(tmp_path, FACTORS + 'return a, {"a": a}'), kept(tmp_path, FACTORS + 'return a, {"a": 2 * a}', "other")
    model = LatentReward(path)
    told = {each.identity for each in (model, replace(model, path=other), replace(model, steps=8), replace(model, seed=1))}
    assert len(told) == 4
    facts = model.online(REACHER, weight=2.0, discount=None).identity
    assert facts["model"] == "lare" and facts["inputs"] == "a" and facts["weight"] == 2.0
    with pytest.raises(InvalidProgram, match=r"reads columns that test/Other does not have(.|\n)*joint_velocity"):
        lacking = replace(REACHER, name="test/Other", observation=ObservationSpec((ArraySpec("position", (1,)),)))
        model.online(lacking, weight=1.0, discount=None)
    with pytest.raises(InvalidSetting, match="2 or more"):
        LatentReward(path, steps=1)

"""zoo:PATH in commands: evaluated in the newest version of its task, and a policy or expert of recordings."""

import json
from pathlib import Path

import numpy as np
import pytest
import stable_baselines3 as sb3

from robo_app.recording import reference_scores as reference
from robo_app.recording.exploration_policies import DisturbedPolicy, share_for
from robo_app.training.foreign_agents import environment_for
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.spec.environment import specification

pytestmark = pytest.mark.filterwarnings("ignore::robo_rl.environments.foreign.UnitsUnknown")


@pytest.fixture
def agent() -> str:
    """An agent that the zoo would keep as ppo/CartPole-v0_1, with an evaluation."""
    folder = Path("zoo/ppo/CartPole-v0_1")
    folder.mkdir(parents=True)
    model = sb3.PPO(
        "MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, n_steps=64, batch_size=64, seed=0, device="cpu"
    )
    model.save(folder / "CartPole-v0.zip")
    np.savez(folder / "evaluations.npz", timesteps=np.array([10, 20]), results=np.array([[1.0, 3.0], [30.0, 50.0]]))
    return f"zoo:{folder}"


def test_an_agent_is_evaluated_beside_its_own_figures(agent, capsys):
    assert dispatch(["evaluate", agent, "--episodes", "3"]) == 0
    page = capsys.readouterr().out
    assert "CartPole-v1: 3 episodes" in page
    assert "trained in CartPole-v0, played in CartPole-v1: versions may differ in physics and reward" in page
    assert "published with it: mean return 40, deviation 14.14 of 2 episodes in CartPole-v0, after 20 steps" in page
    assert dispatch(["evaluate", agent, "--episodes", "3", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["environment"] == "CartPole-v1" and f"return   mean {again['summary']['mean_return']['estimate']:.3g}" in page


def test_options_of_runs_are_refused_for_an_agent(agent):
    with pytest.raises(InvalidSetting, match=r"no run folder(.|\n)*--step, --attempts"):
        dispatch(["evaluate", agent, "--step", "3", "--attempts", "2"])
    with pytest.raises(SpecMismatch, match="observation: 4 numbers here, 3 there"):
        dispatch(["evaluate", agent, "--environment", "Pendulum-v1"])


@pytest.mark.parametrize(
    ("task", "found"),
    [("HalfCheetah-v3", "gymnasium/HalfCheetah-v5"), ("CartPole-v0", "CartPole-v1"), ("Pendulum-v0", "Pendulum-v1")],
)
def test_the_newest_version_of_a_task_is_found(task, found):
    assert environment_for(task) == found


def test_a_task_that_is_not_there_is_named():
    with pytest.raises(UnknownName, match=r"Unknown environment of the agent 'Cheetah-v3'(.|\n)*--environment"):
        environment_for("Cheetah-v3")


def test_episodes_of_an_agent_are_recorded(agent):
    mixed = f"mix:{agent}=0.5,random=0.5"
    assert dispatch(["record", "CartPole-v1", "--policy", mixed, "--episodes", "8", "--out", "d"]) == 0
    actors = {entry.source for entry in Dataset(Path("d")).entries()}
    assert len(actors) == 2 and "random" in actors and (actors - {"random"}).pop().startswith("zoo:ppo/CartPole-v0@")


@pytest.mark.slow
def test_a_family_of_an_agent_is_completed_after_a_kill(agent, monkeypatch):
    monkeypatch.setattr(reference, "EPISODES", 2)
    words = ["record", "CartPole-v1", "--family", "mixed-50", "--expert", agent, "--episodes", "4"]
    assert dispatch([*words, "--out", "a"]) == 0
    whole = Dataset(Path("a"))
    assert sorted(entry.source.partition("@")[0] for entry in whole.entries()) == ["random"] * 2 + ["zoo:ppo/CartPole-v0"] * 2
    monkeypatch.setattr(reference, "rollout", None)  # scores are remembered: nothing is played for them again
    assert dispatch([*words, "--out", "b"]) == 0
    assert Dataset(Path("b")).card["reference"] == whole.card["reference"]
    actions = [[episode.actions.tolist() for episode in Dataset(Path(name))] for name in ("a", "b")]
    assert actions[0] == actions[1]


@pytest.mark.slow
def test_medium_of_an_agent_is_a_disturbed_expert(agent, monkeypatch):
    returns = {"random": 9.0, "expert": 9.5}

    def score(choose, environment, file=None):
        role = "random" if choose(0).name == "random" else "expert"
        return {"actor": role, "return": returns[role], "success": None, "episodes": 2, "seeds": [0, 1]}

    monkeypatch.setattr(reference, "score", score)
    assert dispatch(["record", "CartPole-v1", "--family", "medium", "--expert", agent, "--episodes", "2", "--out", "m"]) == 0
    card = Dataset(Path("m")).card
    assert card["medium"]["threshold"] == pytest.approx(9 + 0.5 / 3) and 0 < card["medium"]["share"] < 1
    assert all("+random=" in entry.source for entry in Dataset(Path("m")).entries())


def test_the_share_of_random_actions_is_found_by_bisection():
    asked = []

    def mean_return(share: float) -> float:
        asked.append(share)
        return 100 * (1 - share) ** 2

    share, evaluated = share_for(mean_return, 36.0, steps=8)
    assert share == pytest.approx(0.4, abs=0.01) and evaluated == pytest.approx(36, abs=1) and len(asked) == 8


@pytest.mark.parametrize(("share", "replaced"), [(0.0, 0), (0.3, 300), (1.0, 1000)])
def test_a_share_of_the_actions_is_replaced(share, replaced):
    spec = specification(make_environment("robo/ArmReach-v0"))

    class Still(RandomPolicy):
        def act(self, observation, *, deterministic=False):
            return np.zeros(spec.action.size, np.float32)

    policies = [DisturbedPolicy(Still(spec, 0), share, seed=4) for _ in range(2)]
    actions = np.array([[policy.act({}) for _ in range(1000)] for policy in policies])
    np.testing.assert_array_equal(actions[0], actions[1])
    assert (np.abs(actions[0]).max(axis=1) > 0).sum() == pytest.approx(replaced, abs=50)

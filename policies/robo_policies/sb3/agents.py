"""Read agents that others trained with Stable-Baselines3 and published, such as those of RL Baselines3 Zoo.

    FOLDER/HalfCheetah-v3.zip                    policy.pth, read with weights_only; data, of which the plain JSON is read
           HalfCheetah-v3/vecnormalize.pkl       moments of observations, read as data (robo_rl.system.pickled_data)
           HalfCheetah-v3/config.yml             says if the training normalised observations
           evaluations.npz                       the zoo's own evaluations

Nothing of a zip or a pickle is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from robo_policies.sb3.agent_heads import Head, HeadSettings, Weights, read_head
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName, is_passing
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.system.pickled_data import Instance, NotPlainData, read_pickled_data
from robo_rl.system.plain_files import content_of, text_of

MOST_BYTES = 1 << 28
"""Largest size in bytes of an unpacked part of a zip."""
ACTIVATIONS = {"Tanh": nn.Tanh, "ReLU": nn.ReLU, "ELU": nn.ELU, "LeakyReLU": nn.LeakyReLU, "SiLU": nn.SiLU, "GELU": nn.GELU}
ZIP = "a zip of Stable-Baselines3, with policy.pth and data"
_NORMALISES = re.compile(r"^\s*-\s*(?:-\s*)*normalize\s*\n\s*-\s*(\S.*)$", re.MULTILINE)
"""Finds the value of `normalize` in the zoo's config.yml, which is a list of pairs of key and value."""
_CLASS = re.compile(r"<class '[\w.]+\.(\w+)'>")
REFUSED = {"use_expln": False, "squash_output": False, "features_extractor_class": "FlattenExtractor"}
"""Settings of a policy that change its actions -> the only value that is supported here."""


class Moments(NamedTuple):
    """Mean and standard deviation by which VecNormalize scaled the observations of the training."""

    mean: npt.NDArray[np.float64]
    """Mean of each number of an observation (D,)."""
    deviation: npt.NDArray[np.float64]
    """Standard deviation of each number of an observation (D,)."""
    limit: float
    """Magnitude to which scaled observations are clipped."""

    def scaled(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Scale observations (..., D): subtract the mean, divide by the deviation, clip."""
        return np.asarray(np.minimum(np.maximum((values - self.mean) / self.deviation, -self.limit), self.limit))


class OwnEvaluation(NamedTuple):
    """The last evaluation that was published with an agent: step of the training, and return of each episode."""

    step: int
    returns: tuple[float, ...]


@dataclass(frozen=True)
class Agent:
    """A published agent as it was read from its files; `policy` makes a policy for an environment."""

    name: str
    """Name such as "sac/HalfCheetah-v3@1a2b3c4d", with the first digits of the SHA-256 of the weights."""
    task: str
    """Gymnasium's id of the environment in which it was trained."""
    head: Head
    moments: Moments | None
    limits: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None
    """Lowest and highest action (A,) of the training; None for choices, or if the file does not have them as plain text."""
    evaluation: OwnEvaluation | None

    def policy(self, spec: EnvironmentSpec, seed: int = 0) -> AgentPolicy:
        """Make the agent's policy for an environment.

        Raises SpecMismatch if the environment has another number of observations or actions, or other limits of actions.
        """
        observation, action = spec.observation.vectors, spec.action
        lines = []
        if observation.size != self.head.inputs:
            lines.append(f"observation: {self.head.inputs} numbers here, {observation.size} there")
        if action.is_discrete != self.head.is_discrete or action.size != self.head.outputs:
            kind = {True: "choices", False: "numbers"}
            here = f"{self.head.outputs} {kind[self.head.is_discrete]}"
            lines.append(f"action: {here} here, {action.size} {kind[action.is_discrete]} there")
        elif self.limits is not None and not np.allclose(self.limits, (action.low, action.high), rtol=1e-5):
            lines.append(f"action limits: {[each.tolist() for each in self.limits]} here, {[action.low, action.high]} there")
        if lines:
            raise SpecMismatch(f"The agent {self.name} was trained in another environment than {spec.name}", lines)
        return AgentPolicy(self, spec.restricted(observation), seed)


class AgentPolicy:
    """Policy of a published agent in an environment; a seed determines its random actions."""

    def __init__(self, agent: Agent, spec: EnvironmentSpec, seed: int) -> None:
        self.environment_spec, self._agent = spec, agent
        self._generator = torch.Generator()
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Reseed the generator: the following actions depend only on `seed`."""
        self._generator.manual_seed(seed)

    def seeded(self, seed: int) -> Self:
        """Seed the policy's random generator and return the policy."""
        self.seed(seed)
        return self

    def reset(self) -> None:
        """Begin an episode: with state-dependent exploration new noise is drawn."""
        self._agent.head.reset(self._generator)

    @torch.inference_mode()
    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[Any]:
        """Return an action (A,) float32 in [-1, 1], or the number of a choice, an int64 scalar."""
        agent, spec = self._agent, self.environment_spec
        seen = np.concatenate([np.ravel(observation[name]) for name in spec.observation]).astype(np.float64)
        scaled = seen if agent.moments is None else agent.moments.scaled(seen)
        action = agent.head.act(torch.from_numpy(scaled).float(), deterministic, self._generator).numpy()
        if agent.head.is_discrete:
            return np.asarray(action, np.int64)
        return np.asarray(action if agent.head.is_normalized else spec.action.to_normalized(action), np.float32)


def read_agent(path: Path) -> Agent:
    """Read the agent in a zip file of Stable-Baselines3, or in a folder with one such file.

    Raises:
        UnknownName: There is no zip, or the folder has several.
        InvalidSetting: The file is of another kind, or vecnormalize.pkl is missing although observations were normalised.
    """
    file = _zip_of(path)
    task, beside = file.stem, file.parent / file.stem
    data, weights = _parts(file)
    head = read_head(weights, _head_settings(data, weights))
    moments = _moments(beside, head.inputs)
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in weights.values()))
    digest.update(b"" if moments is None else np.concatenate(moments[:2]).tobytes())
    algorithm = f"{file.parent.parent.name}/" if file.parent.name.startswith(f"{task}_") else ""
    name = f"{algorithm}{task}@{digest.hexdigest()[:8]}"
    return Agent(name, task, head, moments, _limits(data, head), _own_evaluation(file.parent / "evaluations.npz"))


def _zip_of(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob("*.zip"))
        if len(found) != 1:
            got = ", ".join(each.name for each in found) or "no zip"
            raise UnknownName("agent", str(path), [*map(str, found)], fix=f"name one zip; the folder has {got}")
        return found[0]
    if not path.is_file():
        raise UnknownName("agent", str(path), [], fix="a zip of Stable-Baselines3; `robo-rl data get zoo-agents` brings some")
    return path


def _parts(file: Path) -> tuple[dict[str, Any], Weights]:
    """Return the settings (JSON) and the weights of a zip file; nothing else in it is read."""
    try:
        with zipfile.ZipFile(file) as parts:
            data, weights = (_part(parts, name) for name in ("data", "policy.pth"))
        settings = json.loads(data)
        found = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
        if not isinstance(settings, dict) or not isinstance(found, dict):
            raise ValueError("data or policy.pth holds no mapping")
        named = {str(name): value for name, value in found.items() if isinstance(value, torch.Tensor)}
    except Exception as error:  # torch, zip and JSON raise many kinds for damaged or hostile files
        if is_passing(error):
            raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise InvalidSetting(f"{file} is no agent that can be read.", got=got, allowed=ZIP) from None
    return settings, named


def _part(parts: zipfile.ZipFile, name: str) -> bytes:
    size = parts.getinfo(name).file_size
    if size > MOST_BYTES:
        raise ValueError(f"{name} has {size} bytes, more than {MOST_BYTES}")
    with parts.open(name) as file:
        content = file.read(MOST_BYTES + 1)  # whatever the directory says
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} has more than {MOST_BYTES} bytes")
    return content


def _head_settings(data: dict[str, Any], weights: Weights) -> HeadSettings:
    """Return the settings of the network; raises InvalidSetting for a setting that changes actions and is not supported."""
    settings = data.get("policy_kwargs")
    settings = settings if isinstance(settings, dict) else {}
    for name, allowed in REFUSED.items():
        got = _plain_name(settings.get(name, allowed))
        if got != str(allowed):
            raise InvalidSetting(f"The agent's policy_kwargs has a {name} that is not read here.", got=got, allowed=allowed)
    usual = "Tanh" if "mlp_extractor.policy_net.0.weight" in weights else "ReLU"
    activation = _plain_name(settings.get("activation_fn", usual))
    if activation not in ACTIVATIONS:
        raise UnknownName("activation_fn of the agent", activation, ACTIVATIONS)
    return HeadSettings(ACTIVATIONS[activation], float(settings.get("clip_mean", HeadSettings.clip_mean)))


def _plain_name(value: Any) -> str:
    """Return "ReLU" for the text "<class 'torch.nn.modules.activation.ReLU'>", and other text unchanged."""
    text = str(value)
    return match[1] if (match := _CLASS.fullmatch(text)) else text


def _limits(data: dict[str, Any], head: Head) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    space = data.get("action_space")
    if head.is_discrete or not isinstance(space, dict):
        return None
    low, high = (np.array(re.findall(r"[-+.\deE]+", str(space.get(end, ""))), np.float64) for end in ("low", "high"))
    return (low, high) if len(low) == len(high) == head.outputs else None


def _moments(beside: Path, size: int) -> Moments | None:
    """Return the mean and deviation of observations; None if they were not normalised. Raises InvalidSetting if missing."""
    file, config = beside / "vecnormalize.pkl", beside / "config.yml"
    if not file.is_file():
        text = text_of(config, "the zoo's config.yml") if config.is_file() else ""
        if (match := _NORMALISES.search(text)) and match[1] not in ("false", "null"):
            raise InvalidSetting(
                "The agent was trained on normalised observations, and their moments are not there.",
                got=f"normalize: {match[1]} in {config}, and no {file.name}",
                fix=f"bring {file.name} of the same training: without it the weights mean nothing",
            )
        return None
    try:
        found = read_pickled_data(content_of(file))
        return _read_moments(found, size)
    except (NotPlainData, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidSetting(
            f"{file} holds no moments that can be read without running it.",
            got=f"{type(error).__name__}: {str(error)[:200]}",
            allowed="VecNormalize of Stable-Baselines3, with one mean and variance for each observation",
            fix="it is never unpickled; agents that observe a dict cannot be played",
        ) from None


def _read_moments(found: Any, size: int) -> Moments | None:
    if not isinstance(found, Instance) or not found.symbol.endswith(".VecNormalize"):
        raise ValueError(f"{getattr(found, 'symbol', type(found).__name__)} in the place of VecNormalize")
    state = found.state
    if not state["norm_obs"]:
        return None
    mean, variance = (np.asarray(state["obs_rms"].state[name], np.float64) for name in ("mean", "var"))
    epsilon, limit = float(state["epsilon"]), float(state["clip_obs"])
    if mean.shape != (size,) or variance.shape != (size,):
        raise ValueError(f"{mean.shape} means and {variance.shape} variances for {size} observations")
    if not (np.isfinite([*mean, *variance, epsilon, limit]).all() and variance.min() >= 0 < epsilon and limit > 0):
        raise ValueError("numbers that are no moments")
    return Moments(mean, np.sqrt(variance + epsilon), limit)


def _own_evaluation(file: Path) -> OwnEvaluation | None:
    """Return the last evaluation in the zoo's evaluations.npz; None if the file is missing or cannot be read."""
    try:
        with np.load(file) as found:
            steps, returns = found["timesteps"], found["results"]
            return OwnEvaluation(int(steps[-1]), tuple(float(each) for each in np.ravel(returns[-1])))
    except (OSError, ValueError, LookupError, TypeError, zipfile.BadZipFile):
        return None

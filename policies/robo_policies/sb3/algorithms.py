"""PPO, A2C, SAC, TD3 and DQN of Stable-Baselines3 as learners of robo_rl (Raffin et al. 2021, JMLR 22(268)).

Settings have SB3's names and defaults. With the same seed a training equals plain SB3 bit for bit.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import stable_baselines3 as sb3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from robo_policies.sb3.demonstrations import clone_policy, clone_targets, fill_replay, require_same_environment
from robo_policies.sb3.environment import Environment, SB3Policy, vectorize
from robo_policies.sb3.executed import learn_from_executed_steps
from robo_policies.sb3.policy_input import STATE, PolicyInput
from robo_policies.sb3.rewards import RewardedEnvironments, reward_by_model
from robo_policies.sb3.settings import policy_arguments, schedule, train_frequency
from robo_policies.sb3.training import SB3Training, require_rollout
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.protocols.contract import OWN, Feature, Needs
from robo_rl.protocols.rewards import DelayedRewards, OnlineRewards
from robo_rl.spec.environment import ActionSpec, EnvironmentSpec
from robo_rl.types import Episode, StateDict

ActionKind = Literal["continuous", "discrete"]

_READERS: dict[str, Callable[[Any], Any]] = {
    "learning_rate": schedule,
    "clip_range": schedule,
    "clip_range_vf": lambda value: None if value is None else schedule(value),
    "policy_kwargs": policy_arguments,
    "train_freq": train_frequency,
}


@dataclass(frozen=True)
class SB3Normalization:
    """Settings group `normalize`: whether SB3's VecNormalize scales observations and rewards."""

    observations: bool = False
    """Scale vectors to mean 0 and variance 1 by running statistics."""
    rewards: bool = False
    """Divide rewards by the running standard deviation of the return."""


@dataclass(frozen=True)
class NoiseSettings:
    """Settings group `noise`: noise that is added to the policy's actions in training."""

    type: Literal["normal", "ornstein-uhlenbeck"] | None = None
    """Kind of noise; None for no noise."""
    std: float = 0.1
    """Standard deviation of the noise, for actions in [-1, 1]."""

    def of(self, size: int) -> ActionNoise | None:
        """Return SB3's noise object for actions of `size` numbers; None for no noise."""
        if self.type is None:
            return None
        kind = NormalActionNoise if self.type == "normal" else OrnsteinUhlenbeckActionNoise
        return kind(mean=np.zeros(size), sigma=self.std * np.ones(size))


@dataclass(frozen=True, kw_only=True)
class SB3Config(ABC):
    """Settings common to all learners of Stable-Baselines3: learning rate, discount, network, environments, device."""

    algorithm: ClassVar[type[BaseAlgorithm]]
    """Class of Stable-Baselines3 that is trained."""
    action_kinds: ClassVar[frozenset[ActionKind]]
    """Kinds of actions that the algorithm supports."""

    learning_rate: float | str
    """Step size of Adam (RMSprop for A2C); "lin_3e-4" falls linearly from 3e-4 to 0."""
    gamma: float = 0.99
    """Discount per step."""
    policy_kwargs: dict[str, Any] = field(default_factory=dict)
    """Network: net_arch (list, or {pi: [...], vf: [...]}), activation_fn (a name such as ReLU), log_std_init, ..."""
    n_envs: int = 1
    """Number of environments that step together in this process."""
    normalize: SB3Normalization = SB3Normalization()
    """What VecNormalize scales: observations and rewards."""
    device: str = "auto"
    """"cpu", "cuda", or "auto": the accelerator if there is one, except for PPO and A2C without images, which
    SB3 advises to train on the CPU."""

    def __post_init__(self) -> None:
        for name, read in _READERS.items():  # a wrong setting is reported when it is read, not when training starts
            if name in self.__dict__:
                read(getattr(self, name))
        if self.n_envs < 1:
            raise InvalidSetting("n_envs must be positive.", got=self.n_envs, allowed="1 or more")

    @property
    def needs(self) -> Needs:
        """What the learner needs: SB3's own training loop. Normalised rewards exclude rewards of models, which come late."""
        spaces = frozenset(Feature[kind.upper()] for kind in self.action_kinds) | {Feature.PICTURES}
        late = {Feature.REWARD: "set learner.normalize.rewards to false, and reward.weight so that rewards are near 1"}
        return Needs((OWN,), spaces, late if self.normalize.rewards else {})

    def training(
        self,
        environment_factory: Callable[[], Environment],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        initial_policy: Policy | None = None,
        reward: OnlineRewards | None = None,
    ) -> SB3Training:
        """Make the training loop with an untrained SB3 model, at step 0.

        Args:
            environment_factory: Makes one environment; it is called `n_envs` times.
            steps: Environment steps, over all environments.
            seed: Seed of all random numbers.
            demonstrations: Recorded episodes to begin with.
            initial_policy: Policy whose actions are cloned in place of the recorded ones (PPO, A2C).
            reward: Rewards of a model that replace the environment's.

        Raises:
            InvalidSetting: The algorithm does not fit the actions, or `steps` are fewer than one rollout.
            SpecMismatch: Demonstrations are from another environment.
        """
        rewards = None if reward is None else reward.running(self.n_envs)
        model, spec = self._model(environment_factory, seed, reward, rewards)
        require_rollout(model, steps)
        require_same_environment(demonstrations, spec)
        self._start(model, spec, demonstrations, initial_policy)
        if isinstance(model, OffPolicyAlgorithm):
            learn_from_executed_steps(model)
        if rewards is not None:
            reward_by_model(model, rewards)
        return SB3Training(model, self._acting(model, spec, seed), steps=steps, rewards=rewards)

    def restored_policy(self, environment_factory: Callable[[], Environment], *, seed: int, state: StateDict) -> SB3Policy:
        """Return the policy of a saved training."""
        model, spec = self._model(environment_factory, seed)
        training = SB3Training(model, self._acting(model, spec, seed), steps=0)
        training.load_state_dict(state)
        return training.policy

    def _model(
        self,
        environment_factory: Callable[[], Environment],
        seed: int,
        reward: OnlineRewards | None = None,
        rewards: DelayedRewards | None = None,
    ) -> tuple[BaseAlgorithm, EnvironmentSpec]:
        own = vectorize(environment_factory, self.n_envs, reward)
        environments, spec = cast("VecEnv", own), own.policy_spec
        if rewards is not None:
            environments = RewardedEnvironments(environments, rewards, spec.instruction)
        self._require_fit(spec.action)
        view = PolicyInput(spec.observation)
        arguments = self._arguments(spec.action) | {"device": self._device(view)}
        return self.algorithm(self._policy_name(view), self._normalized(environments, view), seed=seed, **arguments), spec

    @abstractmethod
    def _start(
        self, model: Any, spec: EnvironmentSpec, demonstrations: Sequence[Episode], initial_policy: Policy | None
    ) -> None:
        """Let a fresh model learn from demonstrations, or store them in its replay."""

    def _policy_name(self, view: PolicyInput) -> str:
        return view.policy_name

    def _acting(self, model: BaseAlgorithm, spec: EnvironmentSpec, seed: int) -> SB3Policy:
        return SB3Policy(model, spec, seed=seed)

    @abstractmethod
    def _device(self, view: PolicyInput) -> str: ...

    def _normalized(self, environments: VecEnv, view: PolicyInput) -> VecEnv:
        scales_observations = self.normalize.observations and view.has_vectors
        if not (scales_observations or self.normalize.rewards):
            return environments
        return VecNormalize(
            self.algorithm._wrap_env(environments),  # images channels first, which SB3 would do outside, too late
            norm_obs=scales_observations,
            norm_reward=self.normalize.rewards,
            norm_obs_keys=[STATE] if view.policy_name == "MultiInputPolicy" and scales_observations else None,
            gamma=self.gamma,
        )

    def _arguments(self, action: ActionSpec) -> dict[str, Any]:
        """Return the settings that the constructor of SB3's algorithm accepts, in its format."""
        accepted = inspect.signature(self.algorithm.__init__).parameters
        settings = {item.name: getattr(self, item.name) for item in fields(self) if item.name in accepted}
        return {name: _READERS[name](value) if name in _READERS else value for name, value in settings.items()}

    def _require_fit(self, action: ActionSpec) -> None:
        kind: ActionKind = "discrete" if action.is_discrete else "continuous"
        if kind not in self.action_kinds:
            fitting = sorted(name for name, config in LEARNERS.items() if kind in config.action_kinds)
            raise InvalidSetting(
                f"{self.algorithm.__name__} cannot choose {kind} actions.",
                got=f"{kind} actions {action.names}",
                allowed=f"{', '.join(sorted(self.action_kinds))} actions",
                fix=f"choose one of {', '.join(fitting)}",
            )


@dataclass(frozen=True, kw_only=True)
class SB3OnPolicyConfig(SB3Config):
    """Settings common to SB3's PPO and A2C: rollout, weights of the loss, exploration, cloning of demonstrations."""

    action_kinds = frozenset({"continuous", "discrete"})

    n_steps: int
    """Steps per environment between two updates."""
    gae_lambda: float
    """Lambda of generalised advantage estimation (Schulman et al. 2016)."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Largest norm of a gradient; larger ones are scaled down."""
    normalize_advantage: bool
    """Scale the advantages of a batch to mean 0 and variance 1."""
    use_sde: bool = False
    """Explore with noise that depends on the state (Raffin et al. 2022)."""
    sde_sample_freq: int = -1
    """Steps between new noise matrices; -1 for one per rollout."""
    clone_epochs: int = 0
    """Passes of behaviour cloning over the demonstrations before the training; 0 for no cloning."""
    clone_lowest_std: float = 0.1
    """Smallest standard deviation of actions, in [-1, 1], after cloning; not a setting of SB3."""

    @property
    def needs(self) -> Needs:
        """What the learner needs. Demonstrations are refused without `clone_epochs`, because they can only be cloned."""
        needs = super().needs
        if self.clone_epochs:
            return needs
        return replace(needs, excludes={**needs.excludes, Feature.DEMONSTRATIONS: "set learner.clone_epochs (50 is a start)"})

    def _start(
        self, model: Any, spec: EnvironmentSpec, demonstrations: Sequence[Episode], initial_policy: Policy | None
    ) -> None:
        if bool(demonstrations) != bool(self.clone_epochs) or (initial_policy is not None and not demonstrations):
            raise InvalidSetting(
                f"{self.algorithm.__name__} learns from demonstrations by cloning them before training, and from nothing else.",
                got=f"{len(demonstrations)} demonstrations, clone_epochs {self.clone_epochs}, "
                f"{'an' if initial_policy is not None else 'no'} initial policy",
                allowed="both demonstrations and clone_epochs > 0, or neither; an initial policy needs both",
                fix="set clone_epochs (50 is a start), or leave the demonstrations out",
            )
        if demonstrations:
            observations, actions = clone_targets(model, spec, demonstrations, initial_policy)
            clone_policy(model, observations, actions, epochs=self.clone_epochs)
            if not spec.action.is_discrete and not self.use_sde:
                model.policy.log_std.data.clamp_(min=float(np.log(self.clone_lowest_std)))

    def _device(self, view: PolicyInput) -> str:
        return "cpu" if self.device == "auto" and view.policy_name == "MlpPolicy" else self.device


@dataclass(frozen=True, kw_only=True)
class SB3OffPolicyConfig(SB3Config):
    """Settings common to SB3's SAC, TD3 and DQN: replay memory, batches, target network.

    Demonstrations go into the replay memory; for updates from the first step on set `learning_starts` to 0.
    """

    buffer_size: int = 1_000_000
    """Capacity of the replay in transitions, demonstrations included; the oldest are overwritten."""
    learning_starts: int = 100
    """Steps of random actions before the first update."""
    batch_size: int = 256
    """Transitions of one update."""
    tau: float = 0.005
    """Share of the online network that enters the target network at each update of the target."""
    train_freq: int | tuple[int, str] = 1
    """Steps between updates, or [1, episode]."""
    gradient_steps: int = 1
    """Updates after `train_freq` steps; -1 for one update per step."""
    n_steps: int = 1
    """Number of rewards that are summed before bootstrapping; must be 1 with images."""

    def _start(
        self, model: Any, spec: EnvironmentSpec, demonstrations: Sequence[Episode], initial_policy: Policy | None
    ) -> None:
        if initial_policy is not None:
            raise InvalidSetting(
                f"{self.algorithm.__name__} starts from demonstrations in its replay, not from a policy.",
                got=initial_policy,
                fix="pass demonstrations, or choose sb3-ppo or sb3-a2c with clone_epochs",
            )
        if demonstrations:
            fill_replay(model, spec, demonstrations)

    def _device(self, view: PolicyInput) -> str:
        return self.device


@dataclass(frozen=True, kw_only=True)
class SB3PPOConfig(SB3OnPolicyConfig):
    """Settings common to SB3's PPO and sb3-contrib's recurrent PPO: minibatches, passes, clipping."""

    learning_rate: float | str = 3e-4
    n_steps: int = 2048
    gae_lambda: float = 0.95
    normalize_advantage: bool = True
    batch_size: int = 64
    """Transitions of one update."""
    n_epochs: int = 10
    """Passes over a rollout."""
    clip_range: float | str = 0.2
    """Largest change of the probability ratio; "lin_0.2" falls linearly from 0.2 to 0."""
    clip_range_vf: float | str | None = None
    """Largest change of a value in an update; None for no limit."""
    target_kl: float | None = None
    """Divergence [nat] from the old policy at which the passes over a rollout stop; None for no limit."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(SB3PPOConfig):
    """Settings of the learner `sb3-ppo`, PPO of Stable-Baselines3 (Schulman et al. 2017): the fields of `SB3PPOConfig`."""

    algorithm = sb3.PPO


@dataclass(frozen=True, kw_only=True)
class A2CConfig(SB3OnPolicyConfig):
    """Settings of the learner `sb3-a2c`, synchronous advantage actor-critic of Stable-Baselines3 (Mnih et al. 2016).

    Its own fields choose the optimiser.
    """

    algorithm = sb3.A2C

    learning_rate: float | str = 7e-4
    n_steps: int = 5
    gae_lambda: float = 1.0
    normalize_advantage: bool = False
    use_rms_prop: bool = True
    """RMSprop as in the paper; false for Adam."""
    rms_prop_eps: float = 1e-5
    """Number added to RMSprop's denominator, against division by 0."""


@dataclass(frozen=True, kw_only=True)
class SB3ContinuousOffPolicyConfig(SB3OffPolicyConfig):
    """Settings common to SB3's SAC, TQC and TD3: adds the noise on actions."""

    action_kinds = frozenset({"continuous"})

    noise: NoiseSettings = NoiseSettings()
    """Noise on the actions of training."""

    def _arguments(self, action: ActionSpec) -> dict[str, Any]:
        return super()._arguments(action) | {"action_noise": self.noise.of(action.size)}


@dataclass(frozen=True, kw_only=True)
class SB3SACConfig(SB3ContinuousOffPolicyConfig):
    """Settings common to SB3's SAC and TQC: temperature, target network, state-dependent exploration."""

    learning_rate: float | str = 3e-4
    ent_coef: float | str = "auto"
    """Temperature, the weight of the entropy; "auto" learns it, "auto_0.1" learns it starting from 0.1."""
    target_entropy: float | str = "auto"
    """Target entropy [nat] of a learned temperature; "auto" is minus the number of action elements."""
    target_update_interval: int = 1
    """Number of updates between two updates of the target network."""
    use_sde: bool = False
    """Explore with noise that depends on the state (Raffin et al. 2022)."""
    sde_sample_freq: int = -1
    """Steps between new noise matrices; -1 for one per rollout."""
    use_sde_at_warmup: bool = False
    """Use the noise of `use_sde` instead of uniform actions before `learning_starts`."""


@dataclass(frozen=True, kw_only=True)
class SACConfig(SB3SACConfig):
    """Settings of the learner `sb3-sac`, soft actor-critic of Stable-Baselines3 (Haarnoja et al. 2018).

    All fields are inherited.
    """

    algorithm = sb3.SAC


@dataclass(frozen=True, kw_only=True)
class TD3Config(SB3ContinuousOffPolicyConfig):
    """Settings of the learner `sb3-td3`, TD3 of Stable-Baselines3 (Fujimoto et al. 2018): delay of the actor, target noise.

    SB3 adds no exploration noise by default; the paper's is noise.type normal, noise.std 0.1.
    """

    algorithm = sb3.TD3

    learning_rate: float | str = 1e-3
    policy_delay: int = 2
    """Critic updates per actor update."""
    target_policy_noise: float = 0.2
    """Standard deviation of the noise on the target action."""
    target_noise_clip: float = 0.5
    """Largest noise on the target action."""


@dataclass(frozen=True, kw_only=True)
class DQNConfig(SB3OffPolicyConfig):
    """Settings of the learner `sb3-dqn`, deep Q-learning of Stable-Baselines3 (Mnih et al. 2015).

    Its own fields set the exploration and the updates of the target network.
    """

    algorithm = sb3.DQN
    action_kinds = frozenset({"discrete"})

    learning_rate: float | str = 1e-4
    batch_size: int = 32
    tau: float = 1.0
    train_freq: int | tuple[int, str] = 4
    target_update_interval: int = 10_000
    """Steps between two updates of the target network."""
    exploration_fraction: float = 0.1
    """Share of training over which the probability of a random action falls."""
    exploration_initial_eps: float = 1.0
    """Probability of a random action at the beginning."""
    exploration_final_eps: float = 0.05
    """Probability of a random action after `exploration_fraction` of the training."""
    max_grad_norm: float = 10.0
    """Largest norm of a gradient; larger ones are scaled down."""


LEARNERS: dict[str, type[SB3Config]] = {
    "sb3-ppo": PPOConfig,
    "sb3-a2c": A2CConfig,
    "sb3-sac": SACConfig,
    "sb3-td3": TD3Config,
    "sb3-dqn": DQNConfig,
}

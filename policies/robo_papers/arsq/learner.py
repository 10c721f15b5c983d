"""ARSQ: auto-regressive soft Q-learning over a coarse-to-fine cube of actions.

Liu et al. 2025, "Learning from Suboptimal Data in Continuous Control via Auto-Regressive Soft Q-Network", arXiv:2502.00288; the
cube is that of Seo, Uruç and James 2024, arXiv:2407.07787. An action is a series of choices. At each level, one choice for each
element cuts the box of possible actions into n bins along this element and takes one of them; it sees the box that the earlier
choices have left. B rows, N members, A action elements, L levels of n bins, K = L A choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Critics, Trainable
from robo_policies.networks.encoders import TensorBatch
from robo_policies.networks.settings import LearnerSettings, Network
from robo_rl.errors import require_allowed
from robo_rl.extras import FromExpert, RowNumbers, StoredRows
from robo_rl.protocols.contract import STEPS, Feature, Needs
from robo_rl.protocols.sampling import Replay, Sampling
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Batch, Metrics

OUTPUT_GAIN = 0.01
"""Factor of the initial weights of the last layer of the choices, as in the authors' code. The advantages of all choices of an
action add up, and V rises by as much as those of a fresh network happen to be below 0."""


@dataclass(frozen=True)
class GoodEpisodes(FromExpert):
    """Extra `from_expert` that also marks episodes of the training as the expert's, if their return reaches `threshold`."""

    uses_rewards = True
    threshold: float | None = None

    @override
    def complete(self, rows: StoredRows, steps: RowNumbers) -> Mapping[str, Array]:
        is_good = self.threshold is not None and rows.column("reward", steps).sum() >= self.threshold
        return {"from_expert": rows.column("from_expert", steps) | is_good}


@dataclass(frozen=True)
class ARSQNetwork(Network):
    """Settings group `network` of ARSQ: sizes and standardisation; the authors have three hidden layers of 512."""

    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is."""


@dataclass(frozen=True)
class ARSQReplay(Replay):
    """Settings group `replay` of ARSQ: random steps before the first update, share of recorded episodes in a batch."""

    learning_starts: int = 1_000
    """Environment steps with random actions before the first update."""
    offline_fraction: float = 0.5
    """Share of each batch that comes from the recorded episodes."""


@dataclass(frozen=True)
class ARSQConfig(LearnerSettings):
    """Settings of ARSQ (Liu et al. 2025, arXiv:2502.00288): soft Q-learning over actions as series of choices.

    They set the number of levels and bins, the entropy's weight, and the loss that keeps the policy near the expert's choices.
    """

    needs = Needs(STEPS, excludes={Feature.RELABELLED: "choose a reward that does not change"})

    levels: int = 3
    """L, number of levels of choices. After the last the box of possible actions is 2 / bins^L wide along each element."""
    bins: int = 5
    """n, number of parts into which a choice cuts a box."""
    temperature: float = 1e-3
    """[reward] alpha: weight of the entropy of each choice; an action has `levels` times its elements of them."""
    conservative: Literal["margin", "cql", "off"] = "margin"
    """Form of the loss that keeps the advantages of other bins below those of the expert's bins; "off" for none."""
    conservative_weight: float = 1.0
    """Weight of the loss `conservative`."""
    experts: str = "success"
    """Recorded episodes of the expert: all, success, "source NAME" or "return X" (robo_rl.extras.FromExpert)."""
    self_imitation: float | None = None
    """Return from which on a training episode counts as the expert's. None: no training episode does."""
    lr: float = 3e-4
    """Learning rate of Adam."""
    batch_size: int = 256
    """Transitions of one update."""
    discount: float = 0.99
    """Weight of a reward one step later."""
    tau: float = 0.02
    """Share of the online values that enters the target values at each update."""
    network: ARSQNetwork = ARSQNetwork()
    """Sizes of the networks, and how they are computed."""
    replay: ARSQReplay = ARSQReplay()
    """Settings of the replay memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"levels": (self.levels >= 1, "1 or more"), "bins": (self.bins >= 2, "2 or more")}
        allowed |= {"temperature": (self.temperature > 0, "above 0")}
        allowed |= {"conservative_weight": (self.conservative_weight >= 0, "0 or more")}
        require_allowed(self, allowed | {"conservative": (self.conservative in ("margin", "cql", "off"), "margin, cql or off")})

    @property
    def sampling(self) -> Sampling:
        """Settings that the training loop reads: replay memory, batches, and whose steps are the expert's."""
        return replace(Sampling.of(self), extras=(GoodEpisodes(self.experts, threshold=self.self_imitation),))

    def build(self, spec: EnvironmentSpec, seed: int) -> ARSQ:
        """Build an untrained ARSQ learner for the spec of an environment; its networks are initialised from `seed`."""
        return ARSQ(spec, self, seed)


@dataclass(frozen=True)
class Cube:
    """Converts actions in [-1, 1]^A to series of choices and back; choice k is of level k // A and element k % A."""

    actions: int
    levels: int
    bins: int

    @property
    def choices(self) -> int:
        """K, number of choices that make up an action."""
        return self.levels * self.actions

    def encode(self, actions: Tensor) -> Tensor:
        """Return the bins (B, K) whose boxes hold the actions (B, A)."""
        count = self.bins**self.levels
        cells = ((actions + 1.0) / 2.0 * count).long().clamp(0, count - 1)
        return torch.cat([cells // self.bins ** (self.levels - 1 - level) % self.bins for level in range(self.levels)], 1)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the centres (B, A) of the boxes that the first k choices, codes (B, k), have left; k may be 0 to K."""
        centres = torch.zeros((len(codes), self.actions), device=codes.device)
        for index in range(codes.shape[1]):
            width = 2.0 / self.bins ** (index // self.actions + 1)
            centres[:, index % self.actions] += (codes[:, index] - (self.bins - 1) / 2.0) * width
        return centres

    def contexts(self, codes: Tensor) -> Tensor:
        """Return the input of each choice (B, K, A): the centre of the box that the choices before it have left."""
        level = torch.arange(self.choices, device=codes.device) // self.actions
        moves = (codes - (self.bins - 1) / 2.0) * (2.0 / self.bins ** (level + 1.0))
        spread = functional.one_hot(torch.arange(self.choices, device=codes.device) % self.actions, self.actions)
        moved = moves[:, :, None] * spread
        return moved.cumsum(1) - moved


class Choices(nn.Module):
    """N networks that give the soft advantage A_k(s, box, bin) of each bin of choice k.

    exp(A_k / alpha) is a distribution over bins. The policy draws, or takes the best, by the least advantage of the N networks.
    """

    def __init__(self, parts: LearnerParts, inputs: int, cube: Cube, alpha: float, members: int = 2) -> None:
        super().__init__()
        self.cube, self.alpha, self.members, self._inputs = cube, alpha, members, inputs
        self.layers = parts.networks.critic(inputs + cube.actions + cube.choices, members, outputs=cube.bins)
        shrink_outputs(self.layers, OUTPUT_GAIN)

    def forward(self, observations: Tensor, contexts: Tensor, choices: Tensor) -> Tensor:
        """Return soft advantages (N, B, n) of choices (B,) for boxes with centres (B, A)."""
        place = functional.one_hot(choices, self.cube.choices).float()
        values = self.layers(observations[:, : self._inputs], contexts, place)
        soft: Tensor = values - self.alpha * torch.logsumexp(values / self.alpha, -1, keepdim=True)
        return soft

    def of_actions(self, observations: Tensor, codes: Tensor) -> Tensor:
        """Return the soft advantages (N, B, K, n) of all bins at every choice on the way to the codes (B, K)."""
        rows, count = codes.shape
        contexts = self.cube.contexts(codes).flatten(0, 1)
        places = torch.arange(count, device=codes.device).repeat(rows)
        found: Tensor = self(observations.repeat_interleave(count, 0), contexts, places)
        return found.reshape(self.members, rows, count, -1)

    def mode(self, observations: Tensor) -> Tensor:
        """Return actions (B, A) whose choices, one after the other, are the most likely ones."""
        return self._chosen(observations, None)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Draw random actions (B, A) for features (B, F), one choice after the other."""
        return self._chosen(observations, generator)

    def _chosen(self, observations: Tensor, generator: torch.Generator | None) -> Tensor:
        codes = torch.zeros((len(observations), 0), dtype=torch.long, device=observations.device)
        for index in range(self.cube.choices):
            place = torch.full((len(observations),), index, device=observations.device)
            soft = self(observations, self.cube.decode(codes), place).amin(0)
            if generator is None:
                chosen = soft.argmax(-1, keepdim=True)
            else:
                chances = torch.softmax(soft / self.alpha, -1).cpu()  # the generator's device
                chosen = torch.multinomial(chances, 1, generator=generator).to(codes.device)
            codes = torch.cat([codes, chosen], 1)
        return self.cube.decode(codes)


def shrink_outputs(layers: nn.Module, gain: float) -> None:
    """Multiply weights and biases of a network's last layer by `gain`."""
    arrays = layers.state_dict()
    last = max(name.rpartition(".")[0] for name in arrays if name.startswith(("linears.", "last.")))
    layers.load_state_dict({name: array * gain if name.startswith(f"{last}.") else array for name, array in arrays.items()})


class SoftValues(Trainable):
    """The two networks of ARSQ that one loss trains: soft advantages of the choices, and the value V(s)."""

    def __init__(self, choices: Choices, value: Critics) -> None:
        super().__init__()
        self.choices, self.value = choices, value


class ARSQ(Learned):
    """Learner of ARSQ: soft Q-learning with Q(s, a) = V(s) + the soft advantages of the choices that make up a."""

    def __init__(self, spec: EnvironmentSpec, config: ARSQConfig, seed: int) -> None:
        require_continuous(spec, "ARSQ")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        self.cube = Cube(spec.action.size, config.levels, config.bins)
        choices = Choices(parts, parts.encoder.size, self.cube, config.temperature)
        networks = SoftValues(choices, Critics(parts.networks, parts.encoder.size))
        self.networks = parts.add("choices", networks, config.lr)
        self.choices, self.value = networks.choices, networks.value
        self.target_value = parts.add_target("target_value", self.value)
        parts.act_with(choices)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of values and advantages; returns metrics for the log, empty if none are due."""
        parts, data = self.parts, self.parts.batch(batch)
        observations = parts.encoder(data.observations)
        soft = self.choices.of_actions(observations, codes := self.cube.encode(data.actions))
        taken = soft.gather(-1, codes[None, :, :, None].expand(len(soft), -1, -1, -1))
        q = self.value(observations) + taken.squeeze(-1).sum(-1)
        critic_loss = (data.weights * (q - self.target(data)).square()).mean(1).sum()
        conservative_loss = self.conservative_loss(soft, taken, data.extras["from_expert"])
        self.networks.descend(critic_loss + self.config.conservative_weight * conservative_loss)
        parts.track(self.target_value, self.value, self.config.tau)
        return parts.finish_update({"critic_loss": critic_loss, "conservative_loss": conservative_loss, "q_mean": q.mean()})

    @torch.no_grad()
    def target(self, data: TensorBatch) -> Tensor:
        """Return the targets of the values, r + gamma min_i V'_i(s') (B,).

        V is the soft value already, because exp(A / alpha) of the bins of a choice sums to 1.
        """
        following: Tensor = self.target_value(self.parts.encoder(data.next_observations)).amin(0)
        return data.rewards + data.discounts * data.masks * following

    def conservative_loss(self, soft: Tensor, taken: Tensor, is_expert: Tensor) -> Tensor:
        """Return how far the advantages of other bins lie above those of the expert's bins.

        It is summed over choices and members, and averaged over the expert's rows. "margin": the mean of max(0, A_other - A);
        "cql": max(0, alpha log of the sum of exp(A_other / alpha) - A).

        Args:
            soft: (N, B, K, n) soft advantages.
            taken: (N, B, K, 1) those of the bins of the actions in the batch.
            is_expert: (B,) True for the expert's rows.
        """
        if self.config.conservative == "off":
            return soft.sum() * 0.0
        is_other = soft != taken
        if self.config.conservative == "margin":
            above = ((soft - taken).clamp(min=0.0) * is_other).sum(-1) / (self.cube.bins - 1)
        else:
            alpha = self.config.temperature
            others = alpha * torch.logsumexp((soft / alpha).masked_fill(~is_other, -torch.inf), -1)
            above = (others - taken.squeeze(-1)).clamp(min=0.0)
        return (above.sum(-1) * is_expert).sum() / is_expert.sum().clamp(min=1)

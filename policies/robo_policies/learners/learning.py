"""What gradient learners share: batches as tensors, an Adam that refuses steps that are not finite, targets, acting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from robo_policies.networks.networks import ObservationEncoder
from robo_policies.networks.perceptrons import Floats, Perceptrons
from robo_policies.networks.sight import Seen
from robo_rl.errors import NonFiniteUpdate
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Metrics, StateDict

METRICS_EVERY = 100
"""Updates between two reports: a line for every update is read by nobody."""


@dataclass(frozen=True)
class EncodedBatch:
    """A batch with the observations that a policy sees as one float32 matrix (B, D), standardised by an encoder.

    Where pictures are seen they are beside the matrix (`eyes.py`).
    """

    observations: Seen
    actions: Array
    rewards: Floats
    masks: Floats
    discounts: Floats
    next_observations: Seen
    weights: Floats

    @classmethod
    def of(cls, batch: Batch, encoder: ObservationEncoder, update: int) -> EncodedBatch:
        """Returns the batch, standardised by the encoder; raises NonFiniteUpdate if it holds NaN or infinity."""
        observations, following = encoder.stack(batch.observations), encoder.stack(batch.next_observations)
        plain = {name: getattr(batch, name) for name in PLAIN}
        seen = {"observations": observations.numpy(), "next_observations": following.numpy()}
        require_finite_data(seen | plain, update)
        encoder.fit(observations)
        return cls(observations=encoder(observations).numpy(), next_observations=encoder(following).numpy(), **plain)

    def slices(self, count: int) -> Iterator[EncodedBatch]:
        """Yields `count` contiguous parts of equal size."""
        size = len(self) // count
        for start in range(0, size * count, size):
            yield EncodedBatch(**{field.name: getattr(self, field.name)[start : start + size] for field in fields(self)})

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class TensorBatch:
    """The same as tensors, which share memory with it."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    masks: Tensor
    discounts: Tensor
    next_observations: Tensor
    weights: Tensor

    @classmethod
    def of(cls, batch: Batch, encoder: ObservationEncoder, update: int) -> TensorBatch:
        """Returns the batch, standardised by the encoder; raises NonFiniteUpdate if it holds NaN or infinity."""
        encoded = EncodedBatch.of(batch, encoder, update)
        return cls(**{field.name: torch.from_numpy(getattr(encoded, field.name)) for field in fields(cls)})

    def __len__(self) -> int:
        return len(self.rewards)


PLAIN = ("actions", "rewards", "masks", "discounts", "weights")


def require_finite_data(arrays: Mapping[str, Array], update: int, origin: str = "batch") -> None:
    """Raises NonFiniteUpdate, before anything is changed, if an array of a batch, or of `origin`, holds NaN or infinity."""
    # a sum is not finite if an element is not, and costs a tenth of testing each; the slow test settles overflow
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(sum(float(np.add.reduce(value, axis=None)) for value in arrays.values())):
            return
    for name, value in arrays.items():
        bad = int((~np.isfinite(value)).reshape(len(value), -1).any(1).sum())
        if bad:
            raise NonFiniteUpdate(
                f"Update {update} was refused: {origin} {name} are not finite; all parameters are kept.",
                got=f"{bad} of {len(value)} rows with NaN or infinity",
                allowed="finite numbers",
                fix="look at the environment's reward and sensors, and at the recorded episodes that were loaded",
            )


def fused_adam(
    parameters: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    step: Tensor,
    *,
    lr: float,
    epsilon: float = 1e-8,
) -> None:
    """Takes step number `step` of Adam (Kingma & Ba 2015) in place; `epsilon` is the paper's unless given.

    Calls the fused kernel behind torch.optim.Adam(fused=True) directly: torch.optim imports TorchDynamo at its first step,
    seconds that every run would wait, and costs a tenth of a millisecond a step.
    """
    torch._fused_adam_(
        parameters,
        gradients,
        means,
        squares,
        [],
        [step] * len(parameters),
        lr=lr,
        beta1=0.9,  # this and the next: the paper's values, and PyTorch's
        beta2=0.999,
        eps=epsilon,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
    )


class CheckedAdam:
    """Adam (Kingma & Ba 2015) that refuses a step that is not finite, keeping the parameters as they are."""

    def __init__(self, loss_name: str, parameters: Iterable[Tensor], lr: float) -> None:
        self._loss_name, self.lr = loss_name, lr
        self._parameters: list[Tensor] = list(parameters)
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._step = torch.zeros(())

    def minimize(self, loss: Tensor, update: int) -> None:
        """Takes one step; only these parameters get gradients, so other networks in the graph stay as they are.

        A loss that was made before the step and leads through these parameters can no longer be minimised: autograd raises.
        """
        self.step(float(loss.detach()), list(torch.autograd.grad(loss, self._parameters)), update)
        torch.autograd.graph.increment_version(self._parameters)  # the fused kernel does not, so that gradients would be wrong

    @torch.no_grad()
    def step(self, loss: float, gradients: list[Tensor], update: int) -> None:
        """Takes one step with the gradient of each parameter; raises NonFiniteUpdate if they or the loss are not finite."""
        # squares, because Adam squares them too, and a product with itself takes a third of the time of a norm
        square = sum(float(torch.dot(flat, flat)) for flat in (gradient.reshape(-1) for gradient in gradients))
        if not math.isfinite(loss + square):
            self._refuse(loss, square**0.5, update)
        self._step += 1.0
        fused_adam(self._parameters, gradients, self._means, self._squares, self._step, lr=self.lr)

    def _refuse(self, loss: float, norm: float, update: int) -> None:
        raise NonFiniteUpdate(
            f"Update {update} was refused: the {self._loss_name} is not finite; the parameters before it are kept.",
            got=f"loss {loss}, gradient norm {norm}",
            allowed="finite numbers",
            fix="the batch is finite, so the networks diverge: look at train/q_mean before this step, at the scale of the "
            "rewards, the learning rate and the discount",
        )

    def state_dict(self) -> StateDict:
        """Returns both moments of each parameter, by its position, and the number of steps."""
        moments = enumerate(zip(self._means, self._squares, strict=True))
        return {"step": self._step.clone()} | {str(i): {"mean": m.clone(), "square": s.clone()} for i, (m, s) in moments}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._step.copy_(torch.as_tensor(state["step"]))
        for index, (mean, square) in enumerate(zip(self._means, self._squares, strict=True)):
            mean.copy_(torch.as_tensor(state[str(index)]["mean"]))
            square.copy_(torch.as_tensor(state[str(index)]["square"]))


def track(target: Perceptrons, online: Perceptrons, tau: float) -> None:
    """Moves target parameters towards the online ones: target <- (1 - tau) target + tau online."""
    target.vector.lerp_(online.vector, tau)
    target.refresh()


class Saved(Protocol):
    """A module of PyTorch, or networks of ours."""

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors by name."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Restores them."""
        ...


def clone_state(module: Saved) -> StateDict:
    """Returns the parameters and buffers of a module, copied."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def load_state(module: Saved, state: StateDict) -> None:
    """Restores what `clone_state` returned, or the same as numpy arrays."""
    module.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})


def load_generator(generator: torch.Generator, state: Any) -> None:
    """Restores the state of a generator from a uint8 tensor or array."""
    generator.set_state(torch.as_tensor(state, dtype=torch.uint8).clone())


def generators(seed: int, count: int) -> list[torch.Generator]:
    """Returns independent generators that one seed determines."""
    words = np.random.SeedSequence(seed).generate_state(count, np.uint64)
    return [torch.Generator().manual_seed(int(word >> np.uint64(1))) for word in words]


class Actor(Saved, Protocol):
    """A network that proposes actions for encoded observations."""

    def mode(self, observations: Tensor) -> Tensor:
        """Returns the most likely actions, (B, A) or (B,)."""
        ...

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns random actions, (B, A) or (B,)."""
        ...


class Encoder(Saved, Protocol):
    """Turns observations into what networks see."""

    size: int
    """D numbers of each."""

    def reads(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return a spec without the pictures that are not read."""
        ...

    def write(self, observation: Observation, out: Array) -> None:
        """Writes one observation into (D,)."""
        ...

    def __call__(self, stacked: Tensor) -> Tensor:
        """Returns (..., D), standardised, of what `write` wrote."""
        ...


class ActorPolicy:
    """Acts with an actor network that a learner goes on training; has its own random generator."""

    def __init__(self, spec: EnvironmentSpec, encoder: Encoder, actor: Actor, generator: torch.Generator) -> None:
        self.environment_spec = encoder.reads(spec)
        self._encoder, self._actor, self._generator = encoder, actor, generator
        self._input = torch.zeros(1, encoder.size)
        self._row = self._input.numpy()[0]  # shares memory with the tensor: writing costs no conversion

    def reset(self) -> None:
        """Does nothing: the policy remembers no earlier step."""

    def seed(self, seed: int) -> None:
        """Begins the random numbers of sampled actions anew, so that an episode can be played again by itself."""
        self._generator.manual_seed(seed)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Returns an action (A,) float32 in [-1, 1], or an int64 scalar."""
        return self.act_on(self.encoded(observation), deterministic=deterministic)

    @torch.no_grad()  # not inference mode, which would forbid training to use the memory that is taken here
    def encoded(self, observation: Observation) -> Tensor:
        """Returns what the actor sees of an observation, (1, D), until the next one."""
        self._encoder.write(observation, self._row)
        return self._encoder(self._input)

    def act_on(self, encoded: Tensor, *, deterministic: bool = False) -> Array:
        """Returns an action for what `encoded` returned."""
        with torch.no_grad():
            action = self._actor.mode(encoded) if deterministic else self._actor.draw(encoded, self._generator)
        chosen: Array = action.numpy()[0]
        return chosen

    def parameters(self) -> StateDict:
        """Returns copies of what the encoder and the actor have learnt."""
        return {"encoder": clone_state(self._encoder), "actor": clone_state(self._actor)}

    def load_parameters(self, parameters: StateDict) -> None:
        """Acts with those from now on."""
        load_state(self._encoder, parameters["encoder"])
        load_state(self._actor, parameters["actor"])

    def state_dict(self) -> StateDict:
        """Returns the state of the generator; the networks belong to the learner."""
        return {"generator": self._generator.get_state().clone()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the generator."""
        load_generator(self._generator, state["generator"])


class MetricsWindow:
    """Sums scalars and returns their means every METRICS_EVERY updates."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._updates = 0

    def add(self, scalars: Mapping[str, float]) -> Metrics:
        """Adds the scalars of one update; returns means when they are due and {} otherwise."""
        for tag, value in scalars.items():
            self._sums[tag] = self._sums.get(tag, 0.0) + float(value)
        self._updates += 1
        if self._updates < METRICS_EVERY:
            return {}
        means = {tag: total / self._updates for tag, total in self._sums.items()}
        self._sums, self._updates = {}, 0
        return means

    def state_dict(self) -> StateDict:
        """Returns the sums so far, so that a resumed run logs the same lines."""
        return {"sums": dict(self._sums), "updates": self._updates}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._sums, self._updates = dict(state["sums"]), int(state["updates"])

"""What every learner trained by gradients is made of: networks, optimisers, target networks, generators, policy, state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.networks.accelerated.adam import adam
from robo_policies.networks.actor_critic import NetworkFactory, Trainable, make_seeded
from robo_policies.networks.encoders import ObservationEncoder, Observations, TensorBatch
from robo_policies.networks.settings import own_encoder
from robo_rl.fitting import resolve_device
from robo_rl.metrics import MetricsWindow
from robo_rl.protocols.components import Stateful
from robo_rl.requirements import refuse_step, require_same_networks
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Metrics, StateDict

Module = TypeVar("Module", bound=nn.Module)

STATE_FORMAT = 2
"""Version of the format of `LearnerParts.state_dict`. States of version 1 are refused, because their networks were
different."""


class LearnerParts(Stateful):
    """Parts of a learner: encoder, networks, target networks, optimisers, random generators and policy.

    A learner adds its networks by `add` and `add_target`, and its policy by `act_with`. All parts are saved and restored
    together; a state of which one part does not fit is refused as a whole.
    """

    def __init__(self, spec: EnvironmentSpec, settings: Any, seed: int) -> None:
        """Make the encoder of observations and the random generators.

        settings: LearnerSettings with a group `network`. Raises InvalidSetting if the observations cannot be read.
        """
        self.initial, self.generator, self.acting = generators(seed, 3)
        """Random generators: `initial` for initial parameters, `generator` for updates, `acting` for the policy's actions."""
        self.spec, self.settings, self.device = spec, settings, resolve_device(settings.device)
        network = settings.network
        make_encoder = network.make_encoder(spec) if network.sees else None
        if network.encoder is not None:
            make_encoder = partial(own_encoder, network.encoder, spec)
        encoder = None if make_encoder is None else make_seeded(make_encoder, self.initial).to(self.device)
        is_asymmetric = getattr(settings, "privileged_critic", False)
        self.encoder = ObservationEncoder(spec, network.normalization_rows, encoder, is_asymmetric)
        self.target_encoder = self.encoder
        """Encoder of the target critics, moved with them by `track`; the same object as `encoder` if it is not trained."""
        self.networks = NetworkFactory(network, self.device, self.initial)
        self.updates = self.version = 0
        """Number of updates; `version` counts all changes of the networks, loading included."""
        self._networks: dict[str, nn.Module] = {}
        self._optimizers: dict[str, CheckedAdam] = {}
        self._seeing_target: nn.Module | None = None
        self._metrics = MetricsWindow()
        self.policy: ActorPolicy
        """The policy being trained, saved and restored with the rest."""

    def add(self, name: str, network: Module, lr: float, *, trains_encoder: bool = False) -> Module:
        """Register a network that is trained by Adam, and saved with the rest.

        Args:
            name: Key of the network in the saved state.
            network: The network.
            lr: Learning rate.
            trains_encoder: True if the network's loss also trains a learned encoder, such as that of pictures.

        Returns:
            The same network, on the device.
        """
        self._networks[name] = network.to(self.device)
        trained = nn.ModuleDict({"network": network})
        if trains_encoder and self.encoder.network is not None:
            trained["encoder"] = self.encoder.network
        self._optimizers[name] = optimizer = CheckedAdam(f"{name} loss", trained, lr, lambda: self.updates)
        if isinstance(network, Trainable):
            network.optimizer = optimizer
        return network

    def add_target(self, name: str, network: Module, *, sees: bool = False) -> Module:
        """Register a target network: a copy that is not trained, and that `track` moves towards the original.

        Args:
            name: Key of the copy in the saved state.
            network: The network to copy.
            sees: True to copy a learned encoder, such as that of pictures, too; `track` then moves both copies.

        Returns:
            The copy.
        """
        target = copy.deepcopy(network).requires_grad_(requires_grad=False)
        self._networks[name] = target
        if sees and self.encoder.network is not None:
            self.target_encoder = copy.deepcopy(self.encoder).requires_grad_(requires_grad=False)
            self._seeing_target = target
        return target

    def act_with(self, actor: Actor) -> ActorPolicy:
        """Make the policy, which acts with an actor network that was added before; return it and keep it as `policy`."""
        self.policy = ActorPolicy(self, actor)
        return self.policy

    def batch(self, batch: Batch) -> TensorBatch:
        """Return a batch as tensors on the device, with standardised vectors and augmented pictures.

        Raises NonFiniteUpdate if the batch has a NaN or infinite number.
        """
        data = TensorBatch.of(batch, self.encoder, self.device, self.updates)
        network = self.settings.network
        return network.augment(data, self.encoder.pictures, self.generator) if network.sees else data

    def actor_features(self, observations: Observations) -> Tensor:
        """Return encoded observations (B, F + P) for the actor's loss: F features, and P numbers that only critics read.

        The features have a gradient only if the critics read privileged entries; the actor's loss then trains the encoder.
        Otherwise the critics' loss alone trains it.
        """
        with torch.set_grad_enabled(self.encoder.critic_size > self.encoder.size):
            return self.encoder(observations)

    @torch.no_grad()
    def track(self, target: nn.Module, online: nn.Module, tau: float) -> None:
        """Move a target network towards its original: target <- (1 - tau) target + tau online.

        A copied encoder of the target moves with it.
        """
        follow(target, online, tau)
        if target is self._seeing_target:
            follow(self.target_encoder, self.encoder, tau)

    def finish_update(self, scalars: Mapping[str, float | Tensor]) -> Metrics:
        """Count the update, and return the metrics for the log if they are due.

        Args:
            scalars: Losses and other values of this update by name.

        Returns:
            Mean of each value over the updates since the last report, as train/<name>; empty if metrics are not due.

        Raises:
            NonFiniteUpdate: Metrics are due, and a step since the last ones was not finite on a device.
        """
        self.updates += 1
        self.version += 1
        metrics = self._metrics.add({f"train/{name}": _scalar(value) for name, value in scalars.items()})
        if metrics:
            self.require_finite()
        return metrics

    def require_finite(self) -> None:
        """Raise NonFiniteUpdate if a step on a device was skipped because it was not finite.

        Call it once for each report of metrics only, because it waits for the device.
        """
        for optimizer in self._optimizers.values():
            optimizer.require_finite()

    @override
    def state_dict(self) -> StateDict:
        self.require_finite()
        return {
            "format": STATE_FORMAT,
            "encoder": clone_state(self.encoder),
            "target_encoder": clone_state(self.target_encoder) if self._seeing_target is not None else {},
            "networks": {name: clone_state(network) for name, network in self._networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "generator": self.generator.get_state().clone(),
            "policy": self.policy.state_dict(),
            "metrics": self._metrics.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; the next update is the same as without the interruption.

        Raises RunError for a state of another format.
        """
        require_same_networks(f"format {state.get('format', 1)}", f"format {STATE_FORMAT}")
        load_state(self.encoder, state["encoder"])
        if self._seeing_target is not None:
            load_state(self.target_encoder, state["target_encoder"])
        for name, network in self._networks.items():
            load_state(network, state["networks"][name])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        load_generator(self.generator, state["generator"])
        self.policy.load_state_dict(state["policy"])
        self._metrics.load_state_dict(state["metrics"])
        self.updates = int(state["updates"])
        self.version += 1


class Learned(Stateful):
    """Base class of learners whose whole state is in `parts`."""

    parts: LearnerParts

    @property
    def policy(self) -> ActorPolicy:
        """The policy being trained."""
        return self.parts.policy

    @override
    def state_dict(self) -> StateDict:
        return self.parts.state_dict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.parts.load_state_dict(state)


class CheckedAdam(Stateful):
    """Adam (Kingma & Ba 2015) that never takes a step with a NaN or infinite loss or gradient.

    On a CPU such a step raises NonFiniteUpdate at once. On another device the step is skipped there, and `require_finite`
    raises later, so that no step waits for a transfer from the device.
    """

    def __init__(self, loss_name: str, trained: nn.Module, lr: float, update: Callable[[], int] | None = None) -> None:
        """Make the optimiser of the parameters of `trained`.

        Args:
            loss_name: Name of the loss, for errors.
            trained: Module whose parameters are trained, except frozen ones.
            lr: Learning rate.
            update: Returns the number of the present update, for errors; by default the number of the step.
        """
        self._loss_name, self.lr, self._update = loss_name, lr, update or (lambda: int(self._step.cpu()))
        zeros = copy.deepcopy(trained).requires_grad_(requires_grad=False)
        for values in zeros.parameters():
            values.zero_()
        moments = self._moments = {"mean": zeros, "square": copy.deepcopy(zeros)}  # networks, so that names are the same
        learnt = [index for index, parameter in enumerate(trained.parameters()) if parameter.requires_grad]
        self._parameters, *self._arrays = (
            [list[Tensor](network.parameters())[index] for index in learnt] for network in (trained, *moments.values())
        )
        self._step = torch.zeros((), device=self._parameters[0].device)
        self._skipped = torch.zeros_like(self._step)
        self.is_deferred = not self._step.is_cpu
        """True on a device other than the CPU: steps are checked there, and errors raised later by `require_finite`."""

    def minimize(self, loss: Tensor, lr: float | None = None) -> None:
        """Take one gradient step on a scalar loss; other networks in its graph do not change.

        Another loss that was computed with these parameters before the step cannot be minimised afterwards: autograd raises.

        Args:
            loss: Scalar.
            lr: Learning rate of this and all later steps; None keeps the present one.

        Raises:
            NonFiniteUpdate: On a CPU: loss or gradient are NaN or infinite. The parameters are then as before.
        """
        self.lr = self.lr if lr is None else lr
        gradients = torch.autograd.grad(loss, self._parameters, materialize_grads=True)  # 0 for unused parameters
        # squares, because Adam squares them too, and a product with itself takes a third of the time of a norm
        flat = [gradient.reshape(-1) for gradient in gradients]
        square = sum([torch.dot(each, each) for each in flat])
        assert isinstance(square, Tensor)
        skipped = self._unless_finite(loss.detach(), square)
        self._step += 1.0 if skipped is None else 1.0 - skipped
        with torch.no_grad():
            adam(self._parameters, gradients, self._arrays, self._step, self.lr, skipped)

    def _unless_finite(self, loss: Tensor, square: Tensor) -> Tensor | None:
        """Return a tensor on a device, 1 if the step must be skipped, else 0; on a CPU return None or raise NonFiniteUpdate."""
        total = loss + square
        if self.is_deferred:
            skipped = 1.0 - torch.isfinite(total).float().reshape(())
            self._skipped += skipped
            return skipped
        if not math.isfinite(total.item()):
            self._refuse(f"loss {float(loss)}, gradient norm {float(square) ** 0.5}")
        return None

    def require_finite(self) -> None:
        """Raise NonFiniteUpdate if steps were skipped on a device; a skipped step left the parameters unchanged."""
        if self.is_deferred and (count := int(self._skipped.cpu())):
            self._refuse(f"{count} steps since the last report were not finite, and skipped")

    def _refuse(self, got: str) -> None:
        fix = "the batch is finite, so the networks diverge: look at train/q_mean before this step, at the scale of the "
        refuse_step(self._update(), self._loss_name, got=got, fix=fix + "rewards, the learning rate and the discount")

    @override
    def state_dict(self) -> StateDict:
        return {"step": self._step.cpu().clone()} | {name: clone_state(network) for name, network in self._moments.items()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._step.copy_(torch.as_tensor(state["step"]))
        for name, network in self._moments.items():
            load_state(network, state[name])


class Actor(Protocol):
    """Interface of networks (nn.Module) that choose actions for features (B, F) of observations."""

    def mode(self, observations: Tensor) -> Tensor:
        """Return the most likely actions: (B, A) in [-1, 1], or choices (B,)."""

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return random actions: (B, A) in [-1, 1], or choices (B,)."""


class ActorPolicy(Stateful):
    """Policy that acts with an actor network that a learner trains; it has its own random generator."""

    def __init__(self, parts: LearnerParts, actor: Any) -> None:
        self.environment_spec = parts.encoder.readable(parts.spec)
        self._parts, self._generator, self._device = parts, parts.acting, parts.device
        self._encoder, self._actor = self.online = parts.encoder, actor
        if parts.settings.network.acting_device == "cpu" and parts.device.type != "cpu":
            self._device = torch.device("cpu")
            self._encoder, self._actor = (copy.deepcopy(network).to(self._device) for network in self.online)
        self._version = parts.version

    def reset(self) -> None:
        """Do nothing: the policy has no memory of earlier steps."""

    def seed(self, seed: int) -> None:
        """Seed the generator of random actions, so that a single episode can be repeated."""
        self._generator.manual_seed(seed)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Choose an action for one observation: the most likely one if `deterministic`, else a random one of the policy.

        Returns:
            Action (A,) float32 in [-1, 1], or the number of a discrete choice, an int64 scalar.
        """
        return self.proposed(observation, None if deterministic else self._generator)

    def act_all(self, observations: Mapping[str, Array]) -> Array:
        """Return random actions, (N, A) or (N,), for the observations (N, ...) by name of N environments."""
        return self._chosen({name: observations[name] for name in self._encoder.reads}, self._generator)

    def proposed(self, observation: Observation, generator: torch.Generator | None) -> Array:
        """Return the actor's action for one observation: (A,), a chunk (H, A), or a choice.

        It is random if a generator is given, the most likely one otherwise.
        """
        chosen: Array = self._chosen({name: np.array(observation[name])[None] for name in self._encoder.reads}, generator)[0]
        return chosen

    @torch.no_grad()  # not inference mode, which would forbid training to use the memory that is taken here
    def _chosen(self, rows: Mapping[str, Array], generator: torch.Generator | None) -> Array:
        encoder, actor = self._followed()
        features = encoder(encoder.tensors(encoder.stack(rows, is_acting=True), rows, self._device))
        actions = actor.mode(features) if generator is None else actor.draw(features, generator)
        chosen: Array = actions.cpu().numpy()
        return chosen

    def _followed(self) -> tuple[ObservationEncoder, Any]:
        """Return the encoder and actor that act; if they are copies, they first get the newest parameters."""
        if self._version != self._parts.version:
            self._version = self._parts.version
            for own, online in zip((self._encoder, self._actor), self.online, strict=True):
                if own is not online:
                    own.load_state_dict(online.state_dict())
        return self._encoder, self._actor

    def parameters(self) -> StateDict:
        """Return copies of the parameters of encoder and actor, for `load_parameters` in another process."""
        return {"encoder": clone_state(self.online[0]), "actor": clone_state(self.online[1])}

    def load_parameters(self, parameters: StateDict) -> None:
        """Load parameters that `parameters` returned; the policy acts with them from now on."""
        load_state(self.online[0], parameters["encoder"])
        load_state(self.online[1], parameters["actor"])
        self._parts.version += 1

    @override
    def state_dict(self) -> StateDict:
        return {"generator": self._generator.get_state().clone()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        load_generator(self._generator, state["generator"])


def follow(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the parameters of a target network towards those of `online`: target <- (1 - tau) target + tau online."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, tau)


def _scalar(value: float | Tensor) -> float | Tensor:
    """Return a number, or a detached tensor if reading the number would wait for a device."""
    return value if not isinstance(value, Tensor) else value.item() if value.is_cpu else value.detach().squeeze()


def clone_state(module: nn.Module) -> StateDict:
    """Return the parameters and buffers of a module, copied to the CPU."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


def load_state(module: nn.Module, state: StateDict) -> None:
    """Restore the state returned by `clone_state`; its values may also be numpy arrays."""
    module.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})


def load_generator(generator: torch.Generator, state: Any) -> None:
    """Restore the state of a generator from a uint8 tensor or array."""
    generator.set_state(torch.as_tensor(state, dtype=torch.uint8).clone())


def generators(seed: int, count: int) -> list[torch.Generator]:
    """Return `count` independent random generators on the CPU, all determined by one seed."""
    words = np.random.SeedSequence(seed).generate_state(count, np.uint64)
    return [torch.Generator().manual_seed(int(word >> np.uint64(1))) for word in words]

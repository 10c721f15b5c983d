"""Parts of every learner with gradients: networks, optimisers, targets, generators, policy, and their state."""

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
"""Version of the format of `LearnerParts.state_dict`; 1 had other networks."""


class LearnerParts(Stateful):
    """Parts of a learner: encoder, networks, targets, optimizers, random generators and policy.

    Networks are added one by one. All parts are saved and restored together; a state that does not fit is refused as a whole.
    """

    def __init__(self, spec: EnvironmentSpec, settings: Any, seed: int) -> None:
        """Make the encoder of observations; settings: LearnerSettings with a group `network`."""
        self.initial, self.generator, self.acting = generators(seed, 3)
        """`initial` draws first parameters, `generator` everything that updates draw, `acting` the policy's actions."""
        self.spec, self.settings, self.device = spec, settings, resolve_device(settings.device)
        network = settings.network
        make_encoder = network.make_encoder(spec) if network.sees else None
        if network.encoder is not None:
            make_encoder = partial(own_encoder, network.encoder, spec)
        encoder = None if make_encoder is None else make_seeded(make_encoder, self.initial).to(self.device)
        is_asymmetric = getattr(settings, "privileged_critic", False)
        self.encoder = ObservationEncoder(spec, network.normalization_rows, encoder, is_asymmetric)
        self.target_encoder = self.encoder
        """The encoder of target critics, which `track` moves with them."""
        self.networks = NetworkFactory(network, self.device, self.initial)
        self.updates = self.version = 0
        """`version` counts changes of the networks."""
        self._networks: dict[str, nn.Module] = {}
        self._optimizers: dict[str, CheckedAdam] = {}
        self._seeing_target: nn.Module | None = None
        self._metrics = MetricsWindow()
        self.policy: ActorPolicy
        """The policy being trained, saved and restored with the rest."""

    def add(self, name: str, network: Module, lr: float, *, trains_encoder: bool = False) -> Module:
        """Register a network, to be trained by Adam and saved with the rest.

        Args:
            name: Key of the network in the saved state.
            network: The network.
            lr: Learning rate.
            trains_encoder: True if its loss trains a learned encoder, such as that of pictures, too.

        Returns:
            The network, on the device.
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
        """Make the policy that acts by an actor, which was added before."""
        self.policy = ActorPolicy(self, actor)
        return self.policy

    def batch(self, batch: Batch) -> TensorBatch:
        """Return a batch on the device, standardised and augmented; raises NonFiniteUpdate if it holds NaN or infinity."""
        data = TensorBatch.of(batch, self.encoder, self.device, self.updates)
        network = self.settings.network
        return network.augment(data, self.encoder.pictures, self.generator) if network.sees else data

    def actor_features(self, observations: Observations) -> Tensor:
        """Return features for the actor's loss; a gradient flows into the encoder if the critics read privileged entries."""
        with torch.set_grad_enabled(self.encoder.critic_size > self.encoder.size):
            return self.encoder(observations)

    @torch.no_grad()
    def track(self, target: nn.Module, online: nn.Module, tau: float) -> None:
        """Move target parameters towards the online ones: target <- (1 - tau) target + tau online."""
        follow(target, online, tau)
        if target is self._seeing_target:
            follow(self.target_encoder, self.encoder, tau)

    def finish_update(self, scalars: Mapping[str, float | Tensor]) -> Metrics:
        """Count the update and return metrics if they are due, tags train/<name>."""
        self.updates += 1
        self.version += 1
        metrics = self._metrics.add({f"train/{name}": _scalar(value) for name, value in scalars.items()})
        if metrics:
            self.require_finite()
        return metrics

    def require_finite(self) -> None:
        """Raise NonFiniteUpdate if a step on a device was skipped; once for each report, because it waits for the device."""
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
        """Restore a `state_dict`; the next update is the same as without the interruption. Raises RunError."""
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
    """A learner made of `parts`, saved and restored with them."""

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
    """Adam (Kingma & Ba 2015) that refuses a step that is not finite, keeping the parameters as they are.

    On a CPU it raises at once. On another device a step is skipped there, and `require_finite` raises: nothing is fetched
    before.
    """

    def __init__(self, loss_name: str, trained: nn.Module, lr: float, update: Callable[[], int] | None = None) -> None:
        """update: says the number of the present update, for errors; by default that of the step."""
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
        """True if nothing is fetched at a step."""

    def minimize(self, loss: Tensor, lr: float | None = None) -> None:
        """Take one step; only these parameters get gradients, so other networks in the graph stay as they are.

        Raises NonFiniteUpdate if loss or gradient are not finite. A loss that was made before the step and leads through these
        parameters can no longer be minimised: autograd raises.
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
        """Return 1 if the step is to be skipped, else 0, on a device; raise NonFiniteUpdate on a CPU."""
        total = loss + square
        if self.is_deferred:
            skipped = 1.0 - torch.isfinite(total).float().reshape(())
            self._skipped += skipped
            return skipped
        if not math.isfinite(total.item()):
            self._refuse(f"loss {float(loss)}, gradient norm {float(square) ** 0.5}")
        return None

    def require_finite(self) -> None:
        """Raise NonFiniteUpdate if steps were skipped on a device; the parameters are those before the first of them."""
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
    """An nn.Module that proposes actions for features of observations."""

    def mode(self, observations: Tensor) -> Tensor:
        """Return the most likely actions, (B, A) or (B,)."""

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return random actions, (B, A) or (B,)."""


class ActorPolicy(Stateful):
    """Acts with an actor network that a learner trains; has its own random generator."""

    def __init__(self, parts: LearnerParts, actor: Any) -> None:
        self.environment_spec = parts.encoder.readable(parts.spec)
        self._parts, self._generator, self._device = parts, parts.acting, parts.device
        self._encoder, self._actor = self.online = parts.encoder, actor
        if parts.settings.network.acting_device == "cpu" and parts.device.type != "cpu":
            self._device = torch.device("cpu")
            self._encoder, self._actor = (copy.deepcopy(network).to(self._device) for network in self.online)
        self._version = parts.version

    def reset(self) -> None:
        """Do nothing: the policy remembers no earlier step."""

    def seed(self, seed: int) -> None:
        """Seed sampled actions, so that a single episode can be repeated."""
        self._generator.manual_seed(seed)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return an action (A,) float32 in [-1, 1], or an int64 scalar."""
        return self.proposed(observation, None if deterministic else self._generator)

    def act_all(self, observations: Mapping[str, Array]) -> Array:
        """Return sampled actions (N, ...) for observations name -> (N, ...)."""
        return self._chosen({name: observations[name] for name in self._encoder.reads}, self._generator)

    def proposed(self, observation: Observation, generator: torch.Generator | None) -> Array:
        """Return a sample of the actor with a generator, or its mode without one."""
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
        """Return the networks that act, after a copy of them has taken over the newest parameters."""
        if self._version != self._parts.version:
            self._version = self._parts.version
            for own, online in zip((self._encoder, self._actor), self.online, strict=True):
                if own is not online:
                    own.load_state_dict(online.state_dict())
        return self._encoder, self._actor

    def parameters(self) -> StateDict:
        """Return copies of the parameters of encoder and actor."""
        return {"encoder": clone_state(self.online[0]), "actor": clone_state(self.online[1])}

    def load_parameters(self, parameters: StateDict) -> None:
        """Act with those from now on."""
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
    """Move parameters towards those of another module by a share tau."""
    for old, new in zip(target.parameters(), online.parameters(), strict=True):
        old.lerp_(new, tau)


def _scalar(value: float | Tensor) -> float | Tensor:
    """Return a number, or a tensor if reading it would wait for its device."""
    return value if not isinstance(value, Tensor) else value.item() if value.is_cpu else value.detach().squeeze()


def clone_state(module: nn.Module) -> StateDict:
    """Return the parameters and buffers of a module, copied to the CPU."""
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}


def load_state(module: nn.Module, state: StateDict) -> None:
    """Restore the state returned by `clone_state`, or the same as numpy arrays."""
    module.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})


def load_generator(generator: torch.Generator, state: Any) -> None:
    """Restore the state of a generator from a uint8 tensor or array."""
    generator.set_state(torch.as_tensor(state, dtype=torch.uint8).clone())


def generators(seed: int, count: int) -> list[torch.Generator]:
    """Return independent generators that one seed determines."""
    words = np.random.SeedSequence(seed).generate_state(count, np.uint64)
    return [torch.Generator().manual_seed(int(word >> np.uint64(1))) for word in words]

"""Behaviour cloning: supervised learning of the demonstrated action (Pomerleau 1989, "ALVINN").

Learns from recorded episodes alone; rewards and next observations are not used.
"""

from __future__ import annotations

from dataclasses import dataclass

from robo_policies.learners.offline import OfflineSettings
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.regression_actors import CategoricalActor, DeterministicActor
from robo_rl.errors import require_allowed
from robo_rl.protocols.contract import CONTINUOUS_ONLY, DATA, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics


@dataclass(frozen=True)
class BCSettings(OfflineSettings):
    """Settings common to behaviour cloning and its interactive forms, DAgger and HG-DAgger.

    They steer the learning rate of Adam and its decay to 0.
    """

    needs = Needs(DATA, CONTINUOUS_ONLY | {Feature.DISCRETE, Feature.PICTURES})

    lr: float = 1e-3
    """Learning rate of Adam; the default of the `imitation` library."""
    decay_from: int = 0
    """Number of updates before the learning rate begins to fall."""
    decay_updates: int = 0
    """Number of updates over which it then falls to 0, linearly. After them the rate is `lr` again, for further training
    (online). 0: always `lr`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {name: (getattr(self, name) >= 0, "0 or more") for name in ("decay_from", "decay_updates")}
        require_allowed(self, allowed)
        self.network.require_unused("it has no critics", "layer_norm")

    def build(self, spec: EnvironmentSpec, seed: int) -> BC:
        """Build an untrained learner by behaviour cloning for a spec; its networks are initialised from `seed`."""
        return BC(spec, self, seed)


@dataclass(frozen=True)
class BCConfig(BCSettings):
    """Settings of the learner `bc`, behaviour cloning (Pomerleau 1989): learning rate and its decay, inherited unchanged."""


class BC(Learned):
    """Learner of behaviour cloning: imitates demonstrated actions, continuous or discrete."""

    def __init__(self, spec: EnvironmentSpec, config: BCSettings, seed: int, labels: str = "") -> None:
        """labels: entry of `Batch.extras` with the actions to be cloned; "" for those that were executed."""
        self.config, self._labels = config, labels
        self.parts = parts = LearnerParts(spec, config, seed)
        kind = CategoricalActor if spec.action.is_discrete else DeterministicActor
        actor = kind(parts.networks, parts.encoder.size, spec.action.size)
        self.actor = parts.add("actor", actor, config.lr, trains_encoder=True)
        parts.act_with(self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step that makes the recorded actions of a batch more likely.

        Returns the metrics for the log, or an empty dict at updates for which none are due.
        """
        data = self.parts.batch(batch)
        actions = data.extras[self._labels] if self._labels else data.actions
        loss = (data.weights * self.actor.loss(self.parts.encoder(data.observations), actions)).mean()
        self.actor.descend(loss, self._rate())
        return self.parts.finish_update({"bc_loss": loss})

    def _rate(self) -> float:
        """Return the learning rate of the next update."""
        config = self.config
        past = self.parts.updates - config.decay_from
        return config.lr * (1.0 - past / config.decay_updates if 0 <= past < config.decay_updates else 1.0)

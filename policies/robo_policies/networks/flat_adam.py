"""Adam on one flat array of parameters, with the gradient's norm limited; refuses steps that are not finite."""

from __future__ import annotations

import numpy as np
import torch

from robo_policies.learners.parts import fused_adam
from robo_policies.networks.tanh_towers import Floats
from robo_rl.errors import NonFiniteUpdate
from robo_rl.types import StateDict

EPSILON = 1e-5  # of Stable-Baselines3's PPO and A2C, after OpenAI Baselines; PyTorch has 1e-8


class FlatAdam:
    """Adam (Kingma & Ba 2015): one fused kernel of PyTorch for all parameters, on memory that NumPy shares."""

    def __init__(self, parameters: Floats, gradient: Floats, *, lr: float, max_norm: float) -> None:
        self._gradient, self.lr, self._max_norm = gradient, lr, max_norm
        self._mean, self._square = np.zeros_like(parameters), np.zeros_like(parameters)
        self._steps = np.zeros((), np.float32)
        shared = (parameters, gradient, self._mean, self._square, self._steps)
        self._tensors = [torch.from_numpy(array) for array in shared]

    def step(self, update: int) -> None:
        """Takes one step along the gradient, shortened to `max_norm`; raises NonFiniteUpdate, keeping the parameters."""
        norm = float(np.sqrt(np.dot(self._gradient, self._gradient)))
        if not np.isfinite(norm):
            raise NonFiniteUpdate(
                f"Update {update} was refused: the gradient is not finite; the parameters before it are kept.",
                got=f"gradient norm {norm}",
                allowed="finite numbers",
                fix="the rollout is finite, so the networks diverge: lower the learning rate, or normalise the rewards",
            )
        if norm > self._max_norm:
            self._gradient *= np.float32(self._max_norm / (norm + 1e-6))  # the small number is PyTorch's
        self._steps += 1.0
        parameters, gradient, mean, square, steps = self._tensors
        fused_adam([parameters], [gradient], [mean], [square], steps, lr=self.lr, epsilon=EPSILON)

    def state_dict(self) -> StateDict:
        """Returns both moments and the number of steps."""
        return {"mean": self._mean.copy(), "square": self._square.copy(), "step": float(self._steps)}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._mean[:], self._square[:] = state["mean"], state["square"]
        self._steps.fill(state["step"])

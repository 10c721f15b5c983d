"""Feasibility of plans from two fidelities: Gaussian process classifiers, the higher one corrected from the lower.

Latent functions after Kennedy and O'Hagan 2000, "Predicting the output from a complex computer code when fast approximations
are available": f_high(x) = rho f_low(x) + delta(x); variational inference with inducing points (Hensman, Matthews and
Ghahramani 2015, "Scalable variational Gaussian process classification", arXiv:1411.2005) by GPyTorch. N plans, F features.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.parts import CheckedAdam, clone_state, load_state
from robo_rl.errors import MissingExtra
from robo_rl.protocols.components import Stateful
from robo_rl.types import StateDict

Array = npt.NDArray[np.float64]


class Feasibility(Stateful):
    """Two Gaussian process classifiers that estimate from a plan's features whether it can be flown, one for each fidelity."""

    def __init__(self, features: Array, lr: float, *, uses_low: bool = True) -> None:
        """Raise MissingExtra without GPyTorch.

        features: (N, F) of plans such as those to come; they set the scale, and the inducing points.
        uses_low: False for rho = 0, a high fidelity that learns from its own labels alone.
        """
        gpytorch = _gpytorch()
        self._likelihood = gpytorch.likelihoods.BernoulliLikelihood()
        self._elbow: Callable[..., Any] = gpytorch.mlls.VariationalELBO
        self._mean, self._scale = features.mean(0), np.maximum(features.std(0), 1e-6)
        points = self._scaled(features)
        self.low = _classifier(points, gpytorch.means.ConstantMean())
        self.high = _classifier(points, _discrepancy_mean(self.low) if uses_low else gpytorch.means.ConstantMean())
        self._optimizers = {name: CheckedAdam(f"{name} fidelity", model, lr) for name, model in self.models.items()}
        self.features: dict[str, Array] = {name: np.empty((0, features.shape[1])) for name in self.models}
        self.labels: dict[str, npt.NDArray[np.bool_]] = {name: np.empty(0, np.bool_) for name in self.models}

    @property
    def models(self) -> dict[str, Any]:
        """Name of a fidelity -> its classifier."""
        return {"low": self.low, "high": self.high}

    def add(self, fidelity: str, features: Array, labels: npt.NDArray[np.bool_]) -> None:
        """Add labels (N,) of plans with features (N, F) at a fidelity; `fit` learns from them."""
        self.features[fidelity] = np.concatenate([self.features[fidelity], features])
        self.labels[fidelity] = np.concatenate([self.labels[fidelity], labels])

    def fit(self, steps: int, size: int, random: np.random.Generator) -> None:
        """Take `steps` steps of stochastic variational inference at each fidelity, on batches of `size` labels."""
        for name, model in self.models.items():
            count = len(self.labels[name])
            if not count:
                continue
            model.train()
            bound = self._elbow(self._likelihood, model, num_data=count)
            for _ in range(steps):
                rows = random.integers(count, size=min(size, count)) if count > size else np.arange(count)
                targets = torch.from_numpy(self.labels[name][rows].astype(np.float64))
                loss = -bound(model(self._scaled(self.features[name][rows])), targets)
                self._optimizers[name].minimize(loss)
            model.eval()

    @torch.no_grad()
    def latent(self, fidelity: str, features: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation (N,) of the latent function at a fidelity, for features (N, F)."""
        found = self.models[fidelity].eval()(self._scaled(features))
        return found.mean.numpy(), found.variance.clamp_min(1e-12).sqrt().numpy()

    def probability(self, fidelity: str, features: Array) -> Array:
        """Return P(feasible) (N,): the probit of the latent function, averaged over its uncertainty."""
        mean, deviation = self.latent(fidelity, features)
        scaled = torch.from_numpy(mean / np.sqrt(1.0 + deviation**2))
        return np.asarray(0.5 * torch.special.erfc(-scaled / 2.0**0.5), np.float64)

    def most_uncertain(self, fidelity: str, features: Array, count: int) -> npt.NDArray[np.int64]:
        """Return the numbers of `count` rows whose label is least certain: with the least |mean| / deviation.

        Echard, Gayton and Lemaire 2011, "AK-MCS: An active learning reliability method", eq. 14.
        """
        mean, deviation = self.latent(fidelity, features)
        return np.argsort(np.abs(mean) / deviation, kind="stable")[:count]

    def _scaled(self, features: Array) -> Tensor:
        return torch.from_numpy((features - self._mean) / self._scale)

    @override
    def state_dict(self) -> StateDict:
        return {
            "mean": self._mean.copy(),
            "scale": self._scale.copy(),
            "models": {name: clone_state(model) for name, model in self.models.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "features": {name: values.copy() for name, values in self.features.items()},
            "labels": {name: values.copy() for name, values in self.labels.items()},
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._mean, self._scale = np.asarray(state["mean"]), np.asarray(state["scale"])
        for name, model in self.models.items():
            load_state(model, state["models"][name])
            self._optimizers[name].load_state_dict(state["optimizers"][name])
            self.features[name] = np.asarray(state["features"][name])
            self.labels[name] = np.asarray(state["labels"][name], np.bool_)


def _classifier(points: Tensor, mean: Any) -> Any:
    """Return a variational Gaussian process with inducing points (M, F) and a kernel with a scale for each feature."""
    gpytorch = _gpytorch()

    class Classifier(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            strategy = gpytorch.variational.VariationalStrategy(self, points.clone(), law, learn_inducing_locations=True)
            super().__init__(strategy)
            self.mean_module = mean
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=points.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: Tensor) -> Any:
            """Return the prior at x (N, F)."""
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Classifier().double()


def _discrepancy_mean(low: Any) -> nn.Module:
    """Return the mean function rho f_low(x), so that the process itself is delta."""
    gpytorch = _gpytorch()

    class LowFidelityMean(gpytorch.means.Mean):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self._low = [low]  # in a list, so that it is no part of this model
            self.rho = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            """Return rho times the posterior mean of the low fidelity at x (N, F)."""
            with torch.no_grad():
                mean = self._low[0].eval()(x).mean
            scaled: Tensor = self.rho * mean
            return scaled

    return LowFidelityMean()


def _gpytorch() -> Any:
    """Return the package; raises MissingExtra."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it uses torch.jit.script
            import gpytorch
    except ImportError:
        raise MissingExtra("A model of feasibility", "gpytorch", install='pip install "robo-rl-papers[fidelity]"') from None
    return gpytorch

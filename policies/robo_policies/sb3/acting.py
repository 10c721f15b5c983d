"""Networks for an export of policies that Stable-Baselines3 trained; they read observations of robo_rl."""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.preprocessing import is_image_space_channels_first
from torch import Tensor, nn

from robo_policies.export.acting import VectorScale
from robo_policies.sb3.policy_input import STATE, PolicyInput


class SB3Step(nn.Module):
    """Network for an export of an SB3 model: its deterministic action, with the scaling of VecNormalize included."""

    def __init__(self, model: BaseAlgorithm, view: PolicyInput) -> None:
        super().__init__()
        self.policy = copy.deepcopy(model.policy).cpu().requires_grad_(requires_grad=False)
        self.policy.set_training_mode(False)
        self.vectors, self.cameras = view.vectors, view.cameras
        self.scale = _scale(model, is_named=bool(view.cameras))
        self._limits = None if model.action_space.__class__.__name__ == "Discrete" else (-1.0, 1.0)

    def observation(self, inputs: dict[str, Tensor]) -> Any:
        """Return the input of SB3's policy, a tensor or a dict, for named tensors (B, ...)."""
        flat = [inputs[array.name].float().flatten(1) for array in self.vectors]
        joined = [self.scale(torch.cat(flat, 1))] if flat else []
        if not self.cameras:
            return joined[0]
        pictures = {camera.name: self._picture(camera.name, inputs[camera.name]) for camera in self.cameras}
        return {STATE: joined[0], **pictures} if joined else pictures

    def _picture(self, name: str, picture: Tensor) -> Tensor:
        """Return a picture (B, H, W, C) as the model reads it: (B, C, H, W) if the model has channels first."""
        space: Any = cast("spaces.Dict", self.policy.observation_space)[name]
        return picture.permute(0, 3, 1, 2) if is_image_space_channels_first(space) else picture

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return actions (B, A) in [-1, 1], or choices (B,), in a tuple of one."""
        return (self._limited(self.policy._predict(self.observation(inputs), deterministic=True)),)

    def _limited(self, actions: Tensor) -> Tensor:
        return actions if self._limits is None else actions.clamp(*self._limits)


class RecurrentStep(SB3Step):
    """Network for an export of an SB3 model with a memory (sb3-contrib's RecurrentPPO)."""

    def forward(self, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return actions (B, A) or choices (B,), then hidden and cell state, each (B, layers, units)."""
        policy: Any = self.policy
        features = policy.extract_features(self.observation(inputs), policy.pi_features_extractor)
        before = tuple(inputs[name].transpose(0, 1).contiguous() for name in ("hidden", "cell"))
        latent, after = policy.lstm_actor(features[None], before)
        chosen = policy._get_action_dist_from_latent(policy.mlp_extractor.forward_actor(latent[0]))
        actions = self._limited(chosen.get_actions(deterministic=True))
        return (actions, *(each.transpose(0, 1) for each in after))


def _scale(model: BaseAlgorithm, *, is_named: bool) -> nn.Module:
    """Return a module that scales vectors as VecNormalize does, or an identity if the model has no VecNormalize."""
    normalizer = model.get_vec_normalize_env()
    if normalizer is None or not normalizer.norm_obs:
        return nn.Identity()
    moments: Any = normalizer.obs_rms[STATE] if is_named else normalizer.obs_rms
    return VectorScale(moments.mean, np.sqrt(moments.var + normalizer.epsilon), normalizer.clip_obs)

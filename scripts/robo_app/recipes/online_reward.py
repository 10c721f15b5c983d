"""Reward model of a recipe, which replaces the environment's reward while a policy learns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from robo_app.recipes.environments import Specs
from robo_app.recipes.recipe import Recipe, RewardSettings
from robo_app.recipes.required_files import require_needs
from robo_app.recipes.reward_file import read_reward
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.rewards.images.picture_scoring import Completion, PictureScoring
from robo_rl.rewards.step_rewards.online_scoring import without
from robo_rl.runs.run import Run
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode


def reward_of(recipe: Recipe[Any], specs: Specs) -> OnlineRewards | None:
    """Return the reward model of a recipe, or None for the environment's own reward.

    Raises InvalidSetting for a model that cannot score online, whose pictures are not rendered, whose discount
    is not the learner's, or whose files are not made yet.
    """
    if not recipe.reward.name:
        return None
    require_needs(recipe)
    model = read_reward(recipe.reward.name, recipe.reward.settings)
    if isinstance(model, PictureReward):
        model = _scoring(recipe, model, specs)
    reward = model.online(specs.drawn, weight=recipe.reward.weight, discount=_discount(recipe))
    if not isinstance(model, PictureScoring):
        _require_no_pictures(recipe)
    return reward


def _require_no_pictures(recipe: Recipe[Any]) -> None:
    settings = recipe.reward
    given = {name: getattr(settings, name) for name in ("every", "hold", "completion")}
    usual = RewardSettings()
    if others := [name for name, value in given.items() if value != getattr(usual, name)]:
        raise InvalidSetting(
            f"The reward {settings.name} scores every step by itself.",
            got=", ".join(f"reward.{name}" for name in others),
            fix="leave them out: they are for rewards that look at pictures",
        )


def _scoring(recipe: Recipe[Any], model: PictureReward, specs: Specs) -> PictureScoring:
    settings, completion = recipe.reward, None
    if settings.completion.name:
        judge, chosen = _pictures_reward(settings.completion.name, settings.completion.settings), settings.completion
        completion = Completion(judge, threshold=chosen.threshold, bonus=chosen.bonus)
    _require_discount(recipe, model)
    return PictureScoring(model, every=settings.every, hold=settings.hold, completion=completion, alone=_drawn_alone(specs))


def labelled(reward: OnlineRewards, episodes: Iterable[Episode], spec: EnvironmentSpec) -> tuple[list[Episode], str]:
    """Return demonstrations with the rewards of a model, and a message about them.

    Args:
        reward: The reward model.
        episodes: Demonstrations with the pictures of the reward. A step without a reward cuts an episode in two.
        spec: Spec of the policy; other entries of the observations are left out.

    Raises:
        InvalidSetting: No step got a reward.
    """
    found, steps = [], 0
    for episode in episodes:
        steps += len(episode)
        found += list(reward.labelled(episode, spec))
    count = sum(len(piece) for piece in found)
    if steps and not count:
        raise InvalidSetting("No step of the demonstrations has a label.", got=f"0 of {steps} steps", fix="look at the reward")
    left_out = f" ({count} of {steps} steps have one, the others are left out)" if count < steps else ""
    return found, f", rewards of the model {reward.identity['model']}{left_out}"


def require_same_reward(run: Run, reward: OnlineRewards | None) -> None:
    """Raise InvalidSetting if the reward differs from that with which the run began."""
    before, now = run.description.get("reward"), None if reward is None else dict(reward.identity)
    if before != now:
        names = [name for name in {**(before or {}), **(now or {})} if (before or {}).get(name) != (now or {}).get(name)]
        raise InvalidSetting(
            f"The reward has changed since the run {run.path.name}: {', '.join(names)}.",
            got=now,
            allowed=before,
            fix="give the model back its weights and settings, or train again: values of two rewards have two meanings",
        )


def _pictures_reward(name: str, settings: Mapping[str, Any]) -> PictureReward:
    model = read_reward(name, settings)
    if not isinstance(model, PictureReward):
        raise InvalidSetting(
            f"The reward {name} cannot be given while a policy acts.",
            got=f"{type(model).__name__}, which labels whole episodes",
            allowed="a reward of single pictures (PictureReward) or of steps (one with `online`)",
            fix="label a dataset with it (robo-rl label), or choose another (robo-rl reward list)",
        )
    return model


def _require_discount(recipe: Recipe[Any], model: PictureReward) -> None:
    discount = _discount(recipe)
    if model.mode == "potential" and discount is not None and model.discount != discount:
        raise InvalidSetting(
            "A potential leaves the best policies as they are only with the learner's discount.",
            got=f"discount {model.discount} of the reward",
            allowed=f"{discount}, the learner's",
            fix=f"set reward.settings.discount to {discount}",
        )


def _discount(recipe: Recipe[Any]) -> float | None:
    discount: float | None = getattr(recipe.learner, "discount", getattr(recipe.learner, "gamma", None))
    return discount


def _drawn_alone(specs: Specs) -> tuple[str, ...]:
    """Return the names of the entries that only the reward reads; raises InvalidSetting if the policy's entries change, too."""
    hidden = tuple(name for name in specs.drawn.observation if name not in specs.seen.observation)
    specs.seen.require(
        without(specs.drawn, hidden),
        what="reward.arguments change what the policy sees",
        fix="let them only add pictures; lists such as cameras name the policy's own ones, too",
    )
    return hidden

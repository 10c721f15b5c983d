"""robo-rl reward fit embedded: learn an image-text model on pictures that a simulator draws, and keep it in a folder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from robo_app.arguments.free_settings import option_words
from robo_app.display.display import counted
from robo_app.recipes.recipe import require_at_least
from robo_rl.environments.captioned_pictures import captioned_pictures
from robo_rl.rewards.embedded.descent import EmbeddedConfig
from robo_rl.rewards.embedded.fitting import fit, halves
from robo_rl.rewards.embedded.measuring import untrained_orders
from robo_rl.rewards.embedded.model import Origin
from robo_rl.rewards.embedded.rewards import EmbeddedProgress
from robo_rl.rewards.fitted_folder import require_empty


@dataclass(frozen=True)
class FitEmbedded:
    """A small image-text model, on pictures of a simulator with sentences that are known to be true; nothing is downloaded."""

    environment: str
    """Environment: robo/ArmReach-v0, robo/ArmPick-v0 or robo/ArmPush-v0; or a driving one, with --camera birdseye."""
    out: Path
    """Folder to create."""
    camera: str = "front"
    """Camera of the pictures; the model is of no use for those of another camera."""
    image_size: int = 192
    """Height and width of the pictures [pixel]; the same as in the observations that it scores."""
    pictures: int = 6400
    """Number of pictures, including the held-out ones."""
    settings: EmbeddedConfig = field(default_factory=EmbeddedConfig)

    def __post_init__(self) -> None:
        require_at_least(self, {"pictures": 80, "image_size": 32})


def fit_embedded(arguments: FitEmbedded) -> int:
    """Render, fit, save, and print the scores on held-out pictures."""
    require_empty(arguments.out)
    started = time.monotonic()
    size, seed = arguments.image_size, arguments.settings.seed
    data = captioned_pictures(arguments.environment, camera=arguments.camera, size=size, count=arguments.pictures, seed=seed)
    model, measures = fit(data, arguments.settings, shown)
    orders = untrained_orders(model, halves(data, arguments.settings.held_out)[1])
    facts: dict[str, Any] = {"pictures": len(data), "settings": asdict(arguments.settings), "measures": asdict(measures)}
    model.origin = replace(model.origin, facts=facts)
    model.save(arguments.out)
    print("\n".join(measures.lines()))
    print(f"rank correlation of models without training       {', '.join(f'{order:.2f}' for order in orders)}")
    print(f"{len(data)} pictures drawn and learnt from in {time.monotonic() - started:.0f} s; instructions, for example,")
    print(f"  {model.origin.instructions[0]!r} (and {len(model.origin.instructions) - 1} others)")
    print(next_commands(arguments.out, model.origin))
    return 0


def next_commands(folder: Path, origin: Origin) -> str:
    """Return the commands that record episodes with such pictures and label them."""
    settings = {"folder": str(folder)}
    if origin.camera != EmbeddedProgress.camera:
        settings["camera"] = origin.camera
    if not origin.has_task:  # the words of the episodes' own instruction are not known
        settings["instruction"] = origin.instructions[0]
    words = option_words("reward.settings", settings)
    label = shlex.join(["robo-rl", "label", "DATASET", "--reward", EmbeddedProgress.name, *words])
    arguments = " ".join(f"--environment.arguments.{pair.replace('=', ' ', 1)}" for pair in origin.recorded.split())
    record = f"robo-rl record {origin.environment} --episodes 20 --out DATASET {arguments}"
    return f"record such pictures: {record}\nlabel with it: {label} --name NAME"


def shown(steps: Sequence[int], title: str) -> Iterable[int]:
    """Pass steps on, showing progress."""
    return counted(title, "updates", steps)

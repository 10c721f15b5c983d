"""Choice of a method by six questions, among methods that a study over seeds has shown to work (docs/training/choosing.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Answer = Literal["yes", "no"]
Reward = Literal["dense", "sparse", "none"]


@dataclass(frozen=True)
class Situation:
    """A user's answers to the six questions, from which `choose` finds a method."""

    demonstrations: Answer
    """Are there recorded successful episodes, or somebody who can record them?"""
    reward: Reward
    """Reward of the environment: "dense" tells good steps from bad ones, "sparse" rewards success alone, "none" is none."""
    pictures: Answer
    """Does the policy see pictures instead of states?"""
    data_alone: Answer
    """Must it learn from recorded episodes alone, without acting?"""
    person: Answer
    """Will a person correct the policy while it learns?"""
    limits: Answer
    """Are there costs, such as contacts or speed, that must stay below limits?"""


QUESTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "demonstrations": ("Do you have demonstrations, or can you record some?", ("yes", "no")),
    "reward": ("Which reward is there: for every step, for success alone, or none?", ("dense", "sparse", "none")),
    "pictures": ("Does the policy see pictures instead of states?", ("yes", "no")),
    "data_alone": ("Must it learn from recorded data alone?", ("yes", "no")),
    "person": ("Will a person correct it while it learns?", ("yes", "no")),
    "limits": ("Are there costs that must stay below limits?", ("yes", "no")),
}
"""Field of Situation -> question and possible answers."""


@dataclass(frozen=True)
class Choice:
    """The method for a situation, with the commands to run."""

    learner: str
    """Name of the learner."""
    because: str
    """Reason, in one sentence."""
    commands: tuple[str, ...]
    """Commands to run, in this order."""
    page: str
    """Page with measurements of the learner."""


@dataclass(frozen=True)
class Rule:
    """A method, and the condition under which it is chosen."""

    holds: Callable[[Situation], bool]
    learner: str
    because: str
    needs_data: bool = True
    """True if the method needs recorded demonstrations; the commands then record some."""
    more: str = ""
    """Further options of the command `robo-rl train`."""
    page: str = ""
    """Page with measurements; "" for that of the learner."""


RULES = (
    Rule(
        lambda here: here.limits == "yes" and here.data_alone == "no",
        "ppo-lagrangian",
        "It keeps costs below their limits while it learns from the reward.",
        needs_data=False,
        page="docs/safety/constrained-learners.md",
    ),
    Rule(
        lambda here: here.data_alone == "yes" and here.reward != "none",
        "iql",
        "It learns from the rewards of recorded episodes of any quality, without acting.",
    ),
    Rule(lambda here: here.data_alone == "yes", "bc", "Without a reward, good episodes are cloned."),
    Rule(
        lambda here: here.person == "yes" and here.reward == "none",
        "hg-dagger",
        "It clones demonstrations, then the corrections of the person; it needs no reward.",
        more=" --human.kind console",
    ),
    Rule(
        lambda here: here.person == "yes",
        "hil-serl",
        "It learns from reward, demonstrations and corrections together.",
        more=" --human.kind console",
    ),
    Rule(lambda here: here.reward == "none", "bc", "Without a reward, demonstrations are cloned."),
    Rule(
        lambda here: here.demonstrations == "yes" or here.reward == "sparse",
        "rlpd",
        "About 20 demonstrations lead it to the reward; without any, a sparse reward is rarely found.",
    ),
    Rule(
        lambda here: True,
        "sac",
        "A dense reward teaches it in few steps; for discrete actions or a very fast simulator take ppo.",
        needs_data=False,
    ),
)
"""Rules in order; the first one whose condition holds decides."""
RECORD = "robo-rl record {environment} --episodes 20 --noise 0.1 --out data/demonstrations"
SEEING = "robo-rl fit-encoder {environment} --out encoders/mine"
SEES = " --environment.wrappers.encoded.encoder fitted:encoders/mine"


def choose(situation: Situation, environment: str) -> Choice:
    """Return the method for a situation; `environment` is the name that the commands use."""
    rule = next(rule for rule in RULES if rule.holds(situation))
    sees = situation.pictures == "yes" and situation.data_alone == "no"
    data = " --dataset data/demonstrations" if rule.needs_data else ""
    train = f"robo-rl train {rule.learner} --environment {{environment}}{data}{rule.more}{SEES if sees else ''}"
    lines = [*([SEEING] if sees else []), *([RECORD] if rule.needs_data else []), train]
    commands = tuple(line.format(environment=environment) for line in lines)
    return Choice(rule.learner, rule.because, commands, rule.page or f"docs/learners/{rule.learner}.md")

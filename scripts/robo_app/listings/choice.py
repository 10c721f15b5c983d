"""Choice of a method by six questions, with the level of its evidence (docs/training/choosing.md).

A proven method goes before one that is validated only, where both fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from robo_rl.evidence import Evidence, evidence_of

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

    @property
    def acts(self) -> bool:
        """True if it may act in the environment."""
        return self.data_alone == "no"

    @property
    def is_corrected(self) -> bool:
        """True if it acts, a person corrects it, and there are no limits."""
        return self.acts and self.limits == "no" and self.person == "yes"

    @property
    def is_alone(self) -> bool:
        """True if it acts, without a person and without limits."""
        return self.acts and self.limits == "no" and self.person == "no"


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
    """Name of the chosen learner."""
    because: str
    """Reason, in one sentence."""
    commands: tuple[str, ...]
    """Commands to run, in this order."""
    page: str
    """Page with its measurements."""
    evidence: Evidence
    """How far it was shown to work."""


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
        lambda here: here.acts and here.limits == "yes",
        "ppo-lagrangian",
        "It keeps costs below their limits while it learns from the reward.",
        needs_data=False,
        page="docs/safety/constrained-learners.md",
    ),
    Rule(
        lambda here: not here.acts and here.reward != "none",
        "iql",
        "It learns from the rewards of recorded episodes of any quality, without acting.",
    ),
    Rule(
        lambda here: here.is_corrected and here.reward == "none",
        "hg-dagger",
        "It clones demonstrations, then the corrections of the person; it needs no reward.",
        more=" --human.kind console",
    ),
    Rule(
        lambda here: here.is_corrected and here.reward != "none",
        "hil-serl",
        "It learns from reward, demonstrations and corrections together.",
        more=" --human.kind console",
    ),
    Rule(
        lambda here: here.is_alone and (here.reward == "sparse" or (here.reward == "dense" and here.demonstrations == "yes")),
        "rlpd",
        "About 20 demonstrations lead it to the reward; without any, a sparse reward is rarely found.",
    ),
    Rule(
        lambda here: here.is_alone and here.reward == "dense",
        "sac",
        "A dense reward teaches it in few steps; for discrete actions or a very fast simulator take ppo.",
        needs_data=False,
    ),
    Rule(
        lambda here: here.reward == "none" and (here.is_alone or not here.acts),
        "bc",
        "Without a reward, good episodes are cloned.",
    ),
)
"""Rules of the form "in this situation, use this method", best fit first.

Of the rules that hold in a situation, the first one whose method has the best level of evidence is chosen.
"""
RECORD = "robo-rl record {environment} --episodes 20 --noise 0.1 --out data/demonstrations"
SEEING = "robo-rl fit-encoder {environment} --out encoders/mine"
SEES = " --environment.wrappers.encoded.encoder fitted:encoders/mine"


def choose(situation: Situation, environment: str) -> Choice:
    """Return the method for a situation; environment: name in the commands."""
    fitting = [rule for rule in RULES if rule.holds(situation)]
    rule = min(fitting, key=lambda rule: evidence_of("learners", rule.learner).rank)
    sees = situation.pictures == "yes" and situation.data_alone == "no"
    data = " --dataset data/demonstrations" if rule.needs_data else ""
    train = f"robo-rl train {rule.learner} --environment {{environment}}{data}{rule.more}{SEES if sees else ''}"
    lines = [*([SEEING] if sees else []), *([RECORD] if rule.needs_data else []), train]
    commands = tuple(line.format(environment=environment) for line in lines)
    page, evidence = rule.page or f"docs/learners/{rule.learner}.md", evidence_of("learners", rule.learner)
    return Choice(rule.learner, rule.because, commands, page, evidence)

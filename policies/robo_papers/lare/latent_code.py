"""Factors of a latent reward (LaRe), written by a language model: several answers, one summary, and a validation.

Follows Qu et al. 2025 in its order and numbers. Differs from the published code: the description of the action is in the
prompt, a program is tried on recorded steps of all sorts and not on two random rows, so that a factor that is not finite is
found, and no usable answer is an error and not an empty set of factors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robo_rl.errors import InvalidProgram, RewardUnavailable, require_allowed
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.question import Answer, Question, prompt
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.program import FRAMES, RewardProgram
from robo_rl.rewards.programs.sandbox import Sandbox
from robo_rl.rewards.programs.validation import validate
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.rewards.step_rewards.steps import StepScores
from robo_rl.rewards.writing.prompts import means
from robo_rl.types import Array

FACTORS, SUMMARY, MEND = "factors", "summary", "mend"
"""Purposes of prompts, which are the keys of a pack of replies."""

SYSTEM = """You analyse what makes an episode of a robot or another controlled system good or bad, and write it down as numbers.
A small network will learn from the returns of whole episodes how much each of your numbers is worth. Nobody knows the reward
of a single step; your numbers must make it easy to find."""

REQUEST = """The task: {task}

What is known of N steps:

{columns}

First, in a few lines under the heading Understand, say what the agent sees, what its actions do, and how they bring the task
about. Under the heading Analyse say which steps are good and which are bad for the task, and by which quantities they can be
told apart.

Then write one program in one fenced block:

```python
def reward(batch):
    ...
    return total, {{"name_of_a_factor": ..., "name_of_another": ...}}
```

- Each factor is one number for each of the N steps, an array of shape (N,), of a size of about 1; a handful is enough.
- Each tells one thing apart: how far, how much nearer than before, how fast, how much effort, whether something holds.
- Read as few columns as tell it. Use the action where effort or smoothness matters.
- No factor may be infinite or undefined for any step: never divide by what can be 0, nor take a root or logarithm of what can
  be negative or 0.
- `total` is your own guess of the reward of each step, of shape (N,), such as a weighted sum of the factors.
- Say nothing of success that the columns do not show, and do not guess hidden values.

{means}
"""

MERGE = """Here are {count} answers to this request, by colleagues who did not know of each other.

{answers}

Write one program that has every idea of theirs that is sound: each factor once, under one name, computed in the best of the
ways that were proposed. Leave out what says the same as another factor and what cannot be computed from the columns. Answer
with a few lines on your choice and then one fenced block with `def reward(batch):`, by the rules of the request."""

WRONG = """The program was tried on {rows} recorded steps. It cannot be used as it is:

{findings}

Answer with the whole corrected program in one fenced block, by the rules of the request."""


def factors(task: str, view: EnvAbstraction, temperature: float) -> Question:
    """Return the prompt for one candidate program of factors.

    Args:
        task: Task in words.
        view: Columns that the program may read; their description includes the action's.
        temperature: Sampling temperature.
    """
    words = REQUEST.format(task=task, columns=view.text, means=means())
    return prompt(words, purpose=FACTORS, system=SYSTEM, temperature=temperature)


def summary(request: Question, answers: Sequence[str], temperature: float) -> Question:
    """Return the prompt for one program out of several answers to a request."""
    shown = "\n\n".join(f"--- Answer {number} ---\n{answer.strip()}" for number, answer in enumerate(answers, 1))
    words = request.words + "\n" + MERGE.format(count=len(answers), answers=shown)
    return prompt(words, purpose=SUMMARY, system=SYSTEM, temperature=temperature)


def mend(asked: Question, answer: str, findings: str, rows: int) -> Question:
    """Return the prompt that shows a model the problems of its answer; rows: number of steps on which it was tried."""
    return asked.then(answer or "(no answer)", WRONG.format(findings=findings, rows=rows), purpose=MEND)


@dataclass(frozen=True)
class LatentCodeConfig:
    """Settings of the questions to the language model: number of answers, temperatures, rounds of repair."""

    candidates: int = 5
    """Answers that are merged into one; 1 uses the only one unchanged."""
    temperature: float = 1.0
    """Sampling temperature of the answers."""
    summary_temperature: float = 0.3
    """Sampling temperature of the answer that merges them."""
    rounds: int = 5
    """Self-verification: largest number of trials of a program; 0 uses the first program without a trial."""

    def __post_init__(self) -> None:
        temperatures = {
            name: (0 < getattr(self, name) <= 2, "above 0, up to 2") for name in ("temperature", "summary_temperature")
        }
        allowed = {"candidates": (self.candidates >= 1, "1 or more"), "rounds": (self.rounds >= 0, "0 or more")}
        require_allowed(self, allowed | temperatures)


@dataclass(frozen=True)
class Attempt:
    """An answer of the language model, with its program and its problems."""

    text: str
    """Text of the language model's answer."""
    findings: str
    """Problems of the program in words for a language model; empty if none are known."""
    program: RewardProgram | None = None
    """The program in the answer; None if it holds none."""


Heard = Callable[[Attempt], None]


class LatentCode:
    """Lets a language model write one program of factors; called again, it gets the same answers from the model's log."""

    def __init__(
        self,
        model: ModelClient,
        view: EnvAbstraction,
        steps: Mapping[str, Array],
        config: LatentCodeConfig,
        limits: Limits | None = None,
    ) -> None:
        """steps: recorded ones, name -> (N, ...), to try programs on; best some thousands of all sorts."""
        self._model, self._view, self._steps, self._config = model, view, steps, config
        self._limits = limits or Limits()
        self._taken: Counter[str] = Counter()

    def write(self, task: str, heard: Heard = lambda attempt: None) -> RewardProgram:
        """Return a program whose terms are the factors; `heard` gets every attempt.

        Raises RewardUnavailable if no answer can be used, or none passes in the allowed rounds.
        """
        prompt, reply = self._first(task)
        attempt = self._attempt(prompt, reply)
        heard(attempt)
        for _ in range(self._config.rounds - 1):
            if not attempt.findings:
                break
            prompt = mend(self._opening(prompt), attempt.text, attempt.findings, self._rows)
            attempt = self._attempt(prompt, self._asked(prompt))
            heard(attempt)
        if attempt.program is None or (attempt.findings and self._config.rounds):
            raise RewardUnavailable(
                f"No factors for {task!r} have passed their trial.",
                got=attempt.findings,
                allowed=f"a program that passes in {max(self._config.rounds, 1)} rounds",
                fix="another model, more rounds (--settings.rounds), or write the program by hand",
            )
        return attempt.program

    def _first(self, task: str) -> tuple[Question, Answer]:
        """Return the first answer to try, with its prompt: the summary of the candidates, or the only one."""
        config = self._config
        request = factors(task, self._view, config.temperature)
        replies = self._model.sample(request, config.candidates)
        answers = [reply.text for reply in replies if reply.status == "ok" and reply.text.strip()]
        if not answers:
            counts = Counter("empty" if reply.status == "ok" else reply.status for reply in replies)
            raise RewardUnavailable(
                f"None of {config.candidates} candidates for {task!r} is an answer.",
                got=", ".join(f"{count} {status}" for status, count in counts.items()),
                allowed="one answer at least",
                fix="look at the log of the calls, or ask another model",
            )
        if config.candidates == 1:
            return request, replies[0]
        merged = summary(request, answers, config.summary_temperature)
        return merged, self._asked(merged)

    def _asked(self, prompt: Question) -> Answer:
        """Return a new answer: a repeated prompt would bring the same one."""
        first = self._taken[prompt.request]
        self._taken[prompt.request] += 1
        (reply,) = self._model.sample(prompt, 1, first=first)
        return reply

    def _opening(self, prompt: Question) -> Question:
        """Return the prompt without earlier corrections, so that a conversation stays short."""
        return replace(prompt, parts=(prompt.turns[0][1],), turns=()) if prompt.turns else prompt

    def _attempt(self, prompt: Question, reply: Answer) -> Attempt:
        if reply.status != "ok":
            return Attempt(reply.text, f"- There was no complete answer ({reply.status}).")
        origin = {**_origin(reply, prompt, self._config), **({FRAMES: dict(moved)} if (moved := self._view.moved) else {})}
        try:
            program = RewardProgram.parse(reply.text, self._view.columns, provenance=origin)
        except InvalidProgram as error:
            return Attempt(reply.text, f"- {' '.join(str(error).split())}")
        return Attempt(reply.text, self._findings(program) if self._config.rounds else "", program)

    def _findings(self, program: RewardProgram) -> str:
        """Return the problems of a program that keeps to the grammar; empty if there are none."""
        verdict = validate(program, self._steps, limits=self._limits)
        found = [verdict.feedback] if not verdict.passed else []
        if not program.terms:
            found.append("- It returns no factor.")
        elif verdict.rewards is not None and not verdict.rewards.valid.all():
            missing = int((~verdict.rewards.valid).sum())
            found.append(f"- The total or a factor is not finite in {missing} of {self._rows} steps.")
        elif verdict.rewards is not None and (mixed := self._mixed(program, verdict.rewards)):
            found.append(f"- Factors of a step depend on the other steps of the batch: {', '.join(mixed)}. Use axis=1 only.")
        return "\n".join(found)

    def _mixed(self, program: RewardProgram, whole: StepScores) -> list[str]:
        """Return the factors that change if every other row is left out of the batch: the total need not show it."""
        with Sandbox(program, self._limits) as sandbox:
            half = sandbox.run({name: values[::2] for name, values in self._steps.items()})
        near = {name: np.allclose(each, whole.terms[name][::2], rtol=1e-6, atol=1e-9) for name, each in half.terms.items()}
        return [name for name, is_near in near.items() if not is_near]

    @property
    def _rows(self) -> int:
        return len(next(iter(self._steps.values())))


def _origin(reply: Answer, prompt: Question, config: LatentCodeConfig) -> dict[str, str | int]:
    asked: dict[str, str | int] = {"purpose": prompt.purpose, "prompt": prompt.request, "sample": reply.sample}
    return asked | {"model": reply.model, "candidates": config.candidates, "rounds": config.rounds}

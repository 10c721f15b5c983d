"""What a language model is asked for a latent reward: factors, one program out of several answers, and a program that works."""

from __future__ import annotations

from collections.abc import Sequence

from robo_rl.rewards.language.conversation import Prompt, prompt
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.search.prompts import means

FACTORS, SUMMARY, MEND = "factors", "summary", "mend"
"""Purposes, by which a pack answers."""

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


def factors(task: str, view: EnvAbstraction, temperature: float) -> Prompt:
    """Returns the prompt for one candidate; the description of the action is part of the view."""
    words = REQUEST.format(task=task, columns=view.text, means=means())
    return prompt(words, purpose=FACTORS, system=SYSTEM, temperature=temperature)


def summary(request: Prompt, answers: Sequence[str], temperature: float) -> Prompt:
    """Returns the prompt for one program out of several answers to a request."""
    shown = "\n\n".join(f"--- Answer {number} ---\n{answer.strip()}" for number, answer in enumerate(answers, 1))
    words = request.messages[-1].text + "\n" + MERGE.format(count=len(answers), answers=shown)
    return prompt(words, purpose=SUMMARY, system=SYSTEM, temperature=temperature)


def mend(asked: Prompt, answer: str, findings: str, rows: int) -> Prompt:
    """Returns the prompt that shows what is wrong with an answer."""
    return asked.then(answer or "(no answer)", WRONG.format(findings=findings, rows=rows), purpose=MEND)

"""Headline of a report: a sentence and a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.statistics import Interval
from robo_rl.report.reading import RecordedRun

FAILED = 0.1
"""Success rate below which a task counts as not learned, if the whole interval is below it."""
UNDECIDED = 0.5
"""Width of an interval above which there are too few episodes to tell: about 13 at a rate of 0.5."""
VERDICTS = (
    ((0.0, FAILED), "It has not learned the task.", "bad"),
    ((0.9, 2.0), "It solves the task reliably.", "good"),
    ((0.7, 2.0), "It solves the task most of the time.", "good"),
    ((0.3, 2.0), "It solves the task often, but not reliably.", "middling"),
    ((0.0, 2.0), "It solves the task now and then; more training, or another recipe, is needed.", "middling"),
)
"""((smallest lower bound, limit of the upper bound), sentence, color); the first that fits an interval is used."""


@dataclass(frozen=True)
class Headline:
    """Result of all runs of one recipe in short: a number with its meaning, a verdict and a caveat."""

    task: str
    recipe: str
    number: str
    """Success rate, mean return, or a dash."""
    meaning: str
    """Meaning of the number, with its interval and number of episodes."""
    verdict: str
    caveat: str
    color: str
    """"good", "middling", "bad" or "" """
    facts: dict[str, str]


def headline(runs: Sequence[RecordedRun]) -> Headline:
    """Return the headline for runs that differ only in their training seed."""
    finals = [run.final for run in runs if run.final is not None]
    first = runs[0]
    number, meaning, verdict, color = _result(runs, finals)
    return Headline(
        task=(first.spec and first.spec.instruction) or first.environment,
        recipe=first.name,
        number=number,
        meaning=meaning,
        verdict=verdict,
        caveat=_caveat(finals),
        color=color,
        facts={
            "environment": first.environment,
            "algorithm": str(first.recipe.get("algorithm", "not stated")),
            **_reward_source(first),
            "steps": ", ".join(sorted({f"{run.steps:,}" for run in runs})),
            **_judged_policy(runs),
            "training time": duration(sum(run.seconds for run in runs) / len(runs)) + (" a seed" if len(runs) > 1 else ""),
            "seed" if len(runs) == 1 else "seeds": ", ".join(str(run.seed) for run in runs),
        },
    )


def _judged_policy(runs: Sequence[RecordedRun]) -> dict[str, str]:
    """Return which policy the number belongs to, if a run kept a better one from an evaluation during training."""
    better = [(run, found) for run in runs if (found := run.best) is not None and found[0] != run.steps]
    if not better:
        return {}
    texts = []
    for run, (step, judged) in better:
        rate = judged.success_rate
        figure = f"mean return {judged.mean_return.estimate:.3g}" if rate is None else f"success {rate.estimate:.0%}"
        seed = f", seed {run.seed}" if len(runs) > 1 else ""
        texts.append(f"step {step:,}{seed} ({figure} in {len(judged)} episodes)")
    return {"judged policy": f"the newest; best in training: {'; '.join(texts)}, robo-rl evaluate RUN --step best"}


def duration(seconds: float) -> str:
    """Return seconds as text, such as "4 min 52 s" for 292.4."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def verdict(rate: Interval, successes: int, episodes: int) -> tuple[str, str]:
    """Return a sentence and a color for a success rate, mainly from its interval, not its estimate.

    rate: of `successes` in `episodes`.
    """
    if successes == 0 and rate.high >= FAILED:
        count = f"{episodes} episodes" if episodes > 1 else "1 episode"
        return f"No success in {count}; the true rate may be as high as {rate.high:.0%}.", "bad"
    if rate.high - rate.low > UNDECIDED:
        return f"Too few episodes to tell: {successes} of {episodes} succeeded.", "middling"
    return next((sentence, color) for (low, high), sentence, color in VERDICTS if rate.low >= low and rate.high < high)


def _result(runs: Sequence[RecordedRun], finals: list[Evaluation]) -> tuple[str, str, str, str]:
    if not finals:
        recent = [run.newest["rollout/success_rate"] for run in runs if "rollout/success_rate" in run.newest]
        seen = f" In training it last succeeded in {np.mean(recent):.0%} of recent episodes." if recent else ""
        return "–", "no final evaluation", f"Not evaluated yet.{seen}", ""
    episodes = sum(map(len, finals))
    rates = [final.success_rate for final in finals if final.success_rate is not None]
    if not rates:
        means = [final.mean_return for final in finals]
        spread = f"95% interval {means[0].low:.4g} to {means[0].high:.4g}" if len(means) == 1 else _range(means, "{:.4g}")
        text = f"mean return over {episodes} episodes; {spread}"
        return f"{np.mean([mean.estimate for mean in means]):.4g}", text, "This task has no notion of success.", ""
    if len(rates) == 1:
        final, rate = finals[0], rates[0]
        sentence, color = _verdict_of(final, rate)
        count = f"success in {sum(map(bool, final.successes))} of {len(final)} episodes"
        text = f"{count}; 95% interval {rate.low:.0%} to {rate.high:.0%}"
        return f"{rate.estimate:.0%}", text, sentence, color
    rated = [(final, final.success_rate) for final in finals if final.success_rate is not None]
    sentence, color = _verdict_of(*min(rated, key=lambda each: each[1].estimate))
    mean = np.mean([rate.estimate for rate in rates])
    text = f"mean success of {len(rates)} training seeds, {episodes} episodes; {_range(rates, '{:.0%}')}"
    return f"{mean:.0%}", text, f"Judged by its weakest seed: {sentence[0].lower()}{sentence[1:]}", color


def _verdict_of(final: Evaluation, rate: Interval) -> tuple[str, str]:
    return verdict(rate, sum(map(bool, final.successes)), len(final))


def _reward_source(run: RecordedRun) -> dict[str, str]:
    """Return the source of the training rewards; empty if it is the environment."""
    reward = run.facts.get("reward")
    if not isinstance(reward, dict) or "model" not in reward:
        return {}
    completion = f", {reward['completion_model']}" if "completion_model" in reward else ""
    return {"rewards of the model": f"{reward['model']}{completion}"}


def _range(values: Sequence[Interval], form: str) -> str:
    low, high = (function(value.estimate for value in values) for function in (min, max))
    return f"lowest seed {form.format(low)}, highest {form.format(high)}"


def _caveat(finals: list[Evaluation]) -> str:
    if not finals:
        return ""
    if len(finals) == 1:
        return (
            "One training seed: the interval covers the evaluation episodes, not training. Another seed may do better or worse."
        )
    return f"{len(finals)} training seeds; the range between them shows how much training itself varies."

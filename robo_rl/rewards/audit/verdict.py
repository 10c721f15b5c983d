"""Verdict whether to train on a reward, by rules that are reported with their outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from robo_rl.evaluation.figures import Figure
from robo_rl.evaluation.verdicts import Finding, Grade, Verdict, graded
from robo_rl.rewards.audit.evidence import BLANK_PICTURES, HIDDEN_REWARDS, REVERSED, SHUFFLED_TIME, Evidence, agreeing
from robo_rl.rewards.audit.measures import ControlFigures, originals

ENOUGH = 10
"""Smallest number of episodes for a verdict."""
AGREES, USELESS, COINS = 0.9, 0.55, 0.5
"""Shares of pairs that a reward puts in the right order: from AGREES on it agrees with the truth, USELESS is useless, COINS is
chance."""
RANKS, RANKS_USELESS = 0.8, 0.1
"""Spearman's rank correlations over episodes: from the first on a reward agrees with the truth, up to the second it is useless.
They count if success and failure are not both recorded."""
SOME, MOST = 0.3, 0.7
"""Shares of real clips' gain: up to SOME a spoilt clip gains little, from MOST on about as much."""
CLOCK = 0.3
"""Correlation with time above which the scores of clips without an order follow the clock."""
NOTHING = 0.05
"""Share of real clips' gain below which a rise of spoilt clips is ignored, since a rank correlation ignores size."""
FEW_GAPS, MANY_GAPS = 0.05, 0.5
"""Shares of missing labels that are few and too many."""
UNSTEADY = 0.1
"""Difference of two labellings of a clip, in standard deviations of all labels, from which labels are unsteady."""


def verdict(
    evidence: Evidence,
    agreement: Mapping[str, Figure],
    scale: Mapping[str, Figure],
    clips: Sequence[ControlFigures],
    beside: Mapping[str, Figure],
    *,
    reads_pictures: bool,
    reads_words: bool,
) -> Verdict:
    """Conclude from the figures of `measures` whether to train with the reward.

    reads_pictures, reads_words: True if the reward declares it, so that a control that was not tried is reported.
    """
    if len(evidence.episodes) < ENOUGH:
        few = Finding(f"there are {ENOUGH} episodes or more", "not known", f"There are {len(evidence.episodes)} episodes only.")
        return Verdict("", "Cannot tell: too few episodes.", [few])
    by_name = {each.name: each for each in clips}
    findings = [
        _varies(scale["deviation"]),
        _tells_steps_apart(agreement),
        _tells_episodes_apart(agreement),
        _answers(scale),
        _pays_in_sum(agreement),
        *([_sees(evidence)] if reads_pictures else []),
        *[_ignores_clock(by_name[name], by_name["as recorded"]) for name in _WITHOUT_ORDER if name in by_name],
        *([_reads(beside["gain under the wrong text"])] if reads_words else []),
        *([_rests(beside["gain while held still"]), _waits(beside)] if beside["paid for waiting"].is_measured else []),
        *([_repeats(scale["unlike when asked again"])] if evidence.repeated else []),
        *_peeks(evidence),
        *_knows(evidence),
    ]
    return _concluded([each for each in findings if each is not None])


_WITHOUT_ORDER = {
    BLANK_PICTURES.name: "Black pictures",
    SHUFFLED_TIME.name: "Clips in an order by chance",
    REVERSED.name: "Clips that run backwards",
}


def _concluded(findings: Sequence[Finding]) -> Verdict:
    core = {each.outcome for each in findings[1:3]}
    outcomes = {each.outcome for each in findings}
    if "bad" in outcomes:
        return Verdict("bad", "Do not train on it.", findings)
    if core == {"not known"}:
        return Verdict("", "Cannot tell from this data.", findings)
    if outcomes & {"middling", "not known"}:
        return Verdict("middling", "Usable with care.", findings)
    return Verdict("good", "It can be trusted on data like these.", findings)


def _varies(deviation: Figure) -> Finding | None:
    rule = "the labels are not all the same"
    if not deviation.is_measured:
        return Finding(rule, "bad", "It answered nothing.")
    if deviation.interval.estimate <= 1e-9:
        return Finding(rule, "bad", "It says the same of everything.")
    return Finding(rule, "good", f"The labels have a standard deviation of {deviation.interval.estimate:.3g}.")


def _best(figures: Sequence[Figure]) -> Figure:
    return max(figures, key=lambda each: each.interval.estimate if each.is_measured else -np.inf)


def _tells_steps_apart(agreement: Mapping[str, Figure]) -> Finding:
    """Return the finding for the better of two truths, since a reward may follow recorded reward or progress."""
    rule = f"of two steps the better has the higher value in {AGREES:.0%} of pairs, by recorded reward or true progress"
    names = {"reward, pairs": "recorded reward", "progress, pairs": "true progress"}
    best = _best([agreement[name] for name in names])
    outcome = graded(best, AGREES, USELESS)
    if not best.is_measured:
        return Finding(rule, outcome, "The recording distinguishes no two steps.")
    truth = next(words for name, words in names.items() if agreement[name] is best)
    turned = " It is turned round." if best.high < COINS else " Coins do as well." if outcome == "bad" else ""
    found = f"It orders {best.interval:.1%} of {best.n} pairs of steps as the {truth} does."
    return Finding(rule, outcome, found + turned)


def _tells_episodes_apart(agreement: Mapping[str, Figure]) -> Finding:
    best = _best([agreement[name] for name in ("success by last score", "success by mean reward")])
    if best.is_measured:
        rule = f"a success scores above a failure with a probability of {AGREES:.0%}, by its last score or its mean reward"
        outcome = graded(best, AGREES, USELESS)
        turned = " It is turned round." if best.high < COINS else " It does not tell them apart." if outcome == "bad" else ""
        text = f"A success scores above a failure with a probability of {best.interval:.1%} ({best.n} episodes)."
        return Finding(rule, outcome, text + turned)
    rule = f"mean rewards rank episodes as the recorded ones do, with a correlation of {RANKS} or more"
    figure = agreement["mean reward, episodes"]
    if not figure.is_measured:
        return Finding(rule, "not known", "The recording does not distinguish good and bad episodes: both are needed.")
    text = f"Its mean rewards rank {figure.n} episodes like the recorded ones with a correlation of {figure.interval:.2f}."
    return Finding(rule, graded(figure, RANKS, RANKS_USELESS), text)


def _answers(scale: Mapping[str, Figure]) -> Finding:
    rule = f"less than {FEW_GAPS:.0%} of the labels are missing, never more than {MANY_GAPS:.0%}"
    share = scale["missing"]
    won, lost = scale["missing in successes"], scale["missing in failures"]
    text = f"{share.interval.estimate:.1%} of {share.n} labels are missing."
    if won.is_measured and lost.is_measured and (won.low > lost.high + FEW_GAPS or lost.low > won.high + FEW_GAPS):
        text += f" Not by chance: {won.interval.estimate:.0%} in successes, {lost.interval.estimate:.0%} in failures."
        return Finding(rule, "bad" if share.interval.estimate > MANY_GAPS else "middling", text)
    grade: Grade = (
        "good" if share.interval.estimate < FEW_GAPS else "bad" if share.interval.estimate > MANY_GAPS else "middling"
    )
    return Finding(rule, grade, text)


def _pays_in_sum(agreement: Mapping[str, Figure]) -> Finding | None:
    rule = "episodes with a larger recorded return get a larger sum of rewards"
    figure = agreement["return, episodes"]
    if not figure.is_measured:
        return None
    if figure.high < 0:
        text = (
            f"Summed over an episode it ranks episodes the wrong way round ({figure.interval:.2f}): a level that is paid at "
            "every step makes long failures worth more than quick successes. Pay differences (mode delta or potential)."
        )
        return Finding(rule, "middling", text)
    return Finding(rule, "good", f"Its sums rank {figure.n} episodes like the recorded returns with {figure.interval:.2f}.")


def _sees(evidence: Evidence) -> Finding:
    rule = "labels depend on the pictures"
    clips = evidence.controls.get(BLANK_PICTURES.name)
    if not clips:
        return Finding(rule, "not known", "It was shown no black pictures: there is no episode that did not fail.")
    pairs = list(zip(originals(evidence), clips, strict=True))
    if all(agreeing(real, black) == 1 for real, black in pairs):
        return Finding(rule, "bad", "It says the same of black pictures: it does not look at them.")
    refused = all(np.isnan(black.rewards).all() for _, black in pairs)
    text = "It has no labels for black pictures" if refused else "Black pictures change its labels"
    return Finding(rule, "good", f"{text} ({len(pairs)} clips).")


def _ignores_clock(clips: ControlFigures, recorded: ControlFigures) -> Finding:
    name = _WITHOUT_ORDER[clips.name]
    rule = f"{name.lower()} have no values that rise: a value-order correlation that may be 0, never above {CLOCK}"
    if not clips.order.is_measured:
        return Finding(rule, "good", f"{name} have values that do not change, or none.")
    found = f"{name} have a value-order correlation of {clips.order.interval:.2f}"
    if abs(clips.gain.interval.estimate) < NOTHING * abs(recorded.gain.interval.estimate):
        return Finding(rule, "good", f"{found}, but rise by next to nothing.")
    if clips.order.low > CLOCK:
        return Finding(rule, "bad", f"{found}: it rewards that time passes.")
    return Finding(rule, "good" if clips.order.low <= 0 else "middling", f"{found}.")


def _reads(kept: Figure) -> Finding:
    rule = f"under the wrong text a clip gains at most {SOME:.0%} of what it gains under the right one, never {MOST:.0%}"
    if not kept.is_measured:
        return Finding(
            rule, "not known", "Whether it reads the words was not tried: name another instruction with --wrong-text."
        )
    found = f"Under the wrong text clips gain {kept.interval:.0%} of what they gain under the right one ({kept.n} clips)"
    if kept.interval.estimate >= MOST:
        return Finding(rule, "bad", f"{found}: wrong-text clips are rewarded about as much as right ones.")
    return Finding(rule, "good" if kept.interval.estimate <= SOME and kept.high < MOST else "middling", f"{found}.")


def _rests(drift: Figure) -> Finding | None:
    rule = f"while nothing moves the score rises by less than {SOME:.0%} of what the whole clip gains"
    if not drift.is_measured:
        return None
    found = f"While nothing moves the score rises by {drift.interval:.0%} of what the clip gains ({drift.n} clips)."
    return Finding(rule, "bad" if drift.low > SOME else "middling" if drift.high > SOME else "good", found)


def _waits(beside: Mapping[str, Figure]) -> Finding:
    rule = "waiting is not paid as much as going on"
    waiting, going_on = beside["paid for waiting"], beside["paid for going on"]
    text = f"A step of waiting is paid {waiting.interval.estimate:.3g}, a step of going on {going_on.interval.estimate:.3g}."
    if waiting.low > 0 and waiting.interval.estimate > SOME * going_on.interval.estimate:
        more = " Loitering pays: online, pay differences (mode potential)."
        return Finding(rule, "note", text + more)
    return Finding(rule, "good", text)


def _repeats(unlike: Figure) -> Finding:
    rule = f"asked again about the same clip, labels differ by less than {UNSTEADY} of their deviation"
    found = f"Asked again, labels differ by {unlike.interval.estimate:.2g} of their deviation ({unlike.n} clips)."
    return Finding(rule, "good" if unlike.interval.estimate < UNSTEADY else "middling", found)


def _knows(evidence: Evidence) -> list[Finding]:
    if not evidence.fitted_to:
        return []
    fitted = f"It was fitted to {evidence.fitted_to} of these {len(evidence.episodes)} episodes"
    text = f"{fitted}: how well it agrees with others it shows less. Audit it on episodes that it does not know."
    return [Finding("it was not fitted to the episodes that it is tried on", "note", text)]


def _peeks(evidence: Evidence) -> list[Finding]:
    clips = evidence.controls.get(HIDDEN_REWARDS.name)
    if not clips:
        return []
    rule = "labels do not change when recorded rewards and success are hidden"
    same = float(np.mean([agreeing(*pair) for pair in zip(originals(evidence), clips, strict=True)]))
    if same == 1:
        return [Finding(rule, "good", "It does not read the recorded rewards.")]
    changed = f"{1 - same:.0%} of its labels change without them"
    text = f"It reads the recorded rewards: {changed}. Its agreement with them shows nothing."
    return [Finding(rule, "note", text)]

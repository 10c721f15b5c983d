"""Evaluation of policies: episodes on fixed seeds, statistics, measures, films."""

from robo_rl.evaluation.evaluation import Evaluation, compare, evaluate, evaluation_seeds

__all__ = ["Evaluation", "compare", "evaluate", "evaluation_seeds"]

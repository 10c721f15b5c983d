"""Who writes the programs of a search: a language model, or a rule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from robo_app.rewards.program_writing import Asking
from robo_papers.icpl.rule_writer import RuleWriter, read_rule
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.log import CallLog
from robo_rl.settings import plain, settings_as

RULE = "rule:"


@dataclass(frozen=True)
class AskingOrRule(Asking):
    """Language model, or rule, that writes programs, and its settings."""

    llm: str = ""
    """A server ("endpoint", or a YAML file with judge and settings), "pack:NAME" for replies made by hand, "rule:NAME" for
    programs made by rule; empty only with `replay`."""

    @override
    def require_one(self, environment: str) -> None:
        super().require_one(environment)
        if self.llm.startswith(RULE):
            read_rule(self.llm.removeprefix(RULE))

    @override
    def model(self, log: Path) -> ModelClient:
        if not self.llm.startswith(RULE):
            return super().model(log)
        rule = {"rule": plain(read_rule(self.llm.removeprefix(RULE)))}
        made = settings_as(RuleWriter, {**rule, **self.llm_settings}, source=f"the rule {self.llm}")
        return ModelClient(made, log=CallLog(log))

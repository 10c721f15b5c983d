"""Open a language model: a server, a file that names one, a pack of replies, or the log of an earlier run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from robo_rl.discovery import known
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rewards.judging import judge
from robo_rl.rewards.language.call_log import CallLog, LogSource
from robo_rl.rewards.language.judge_source import JudgeSource
from robo_rl.rewards.language.model import LanguageModel
from robo_rl.rewards.language.packs import read_pack

PACK = "pack:"
ENDPOINT = {"max_tokens": 4096, "timeout_s": 300.0, "deadline_s": 900.0}
"""Of an endpoint that writes programs, which are longer than verdicts; the user's settings come before these."""


def language_model(
    llm: str, settings: Mapping[str, Any] | None = None, *, log: Path | None = None, replay: Path | None = None
) -> LanguageModel:
    """Returns a language model; nothing is sent before it is asked.

    llm: the name of a judge such as `endpoint` with its settings, a YAML file with `judge` and `settings`, or
    `pack:NAME_OR_FILE`; not looked at where `replay` names a log that answers everything. log: of this run, which is begun or
    gone on with. Raises UnknownName, InvalidSetting, JudgeError for a log that cannot be used, and JudgeUnavailable for a key
    that is missing where no answer is known yet.
    """
    if replay is not None:
        source = LogSource(replay)
        if log is not None and log.resolve() == replay.resolve():
            raise InvalidSetting("A run cannot be replayed into the log that answers it.", got=log, fix="another --out")
        return LanguageModel(source, CallLog(log))
    if llm.startswith(PACK):
        if settings:
            raise InvalidSetting("A pack takes no settings.", got=sorted(settings))
        return LanguageModel(read_pack(llm.removeprefix(PACK)), CallLog(log))
    name, settings = _named(llm, settings or {})
    if name not in known("judges"):
        raise UnknownName("language model", name, [*known("judges"), "pack:NAME", "FILE.yaml"])
    defaults = ENDPOINT if name == "endpoint" else {}
    asked: Any = judge(name, {**defaults, **settings})
    variable = getattr(asked, "key_variable", "")
    opened = CallLog(log)
    asking = JudgeSource(asked, opened.records)
    try:
        asking.require_key()
    except BaseException:
        opened.close()
        raise
    return LanguageModel(asking, opened, os.environ.get(variable, "").strip() if variable else "")


def require_task(llm: str, task: str) -> None:
    """Raises InvalidSetting where `llm` is a pack of replies for another environment than `task`, UnknownName for no pack."""
    if llm.startswith(PACK):
        read_pack(llm.removeprefix(PACK)).require(task)


def _named(llm: str, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Returns name and settings of a judge, out of a file where one is named."""
    if not llm.endswith((".yaml", ".yml")):
        return llm, settings
    try:
        found = yaml.safe_load(Path(llm).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidSetting(f"{llm} cannot be read.", got=error, allowed="a YAML file") from None
    if not isinstance(found, dict) or found.keys() - {"judge", "settings"} or not isinstance(found.get("settings") or {}, dict):
        got = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise InvalidSetting(f"{llm} is not a language model.", got=got, allowed="the keys judge (endpoint) and settings")
    return str(found.get("judge", "endpoint")), {**(found.get("settings") or {}), **settings}

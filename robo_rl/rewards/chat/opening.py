"""Open a language model: a server, a file that describes one, a pack of replies, or the log of an earlier run.

Replies of a judge, such as the endpoint of a server, are kept in the store of all runs, within the budget of this run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robo_rl.entry_points import known
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.log import CallLog
from robo_rl.rewards.chat.models import chat_model
from robo_rl.rewards.chat.packs import read_pack
from robo_rl.rewards.chat.replay import LoggedModel
from robo_rl.rewards.chat.run_budget import RunBudget
from robo_rl.system.plain_files import read_yaml

PACK = "pack:"
ENDPOINT = {"max_tokens": 4096, "timeout_s": 300.0, "deadline_s": 900.0}
"""Settings of an endpoint that writes programs, which are longer than judgements; settings of the user override them."""


def language_model(
    llm: str, settings: Mapping[str, Any] | None = None, *, log: Path | None = None, replay: Path | None = None
) -> ModelClient:
    """Return a client of a language model; nothing is sent yet.

    Args:
        llm: Name of a judge, such as `endpoint`, with `settings`; a YAML file with `judge` and `settings`; or
            `pack:NAME_OR_FILE`. Ignored with `replay`.
        settings: Settings of the judge.
        log: Log of this run, created or resumed; None to keep it in memory.
        replay: Log that answers all requests; None to ask the model.

    Raises:
        UnknownName: There is no such model or pack.
        InvalidSetting: A setting is wrong.
        JudgeError: The log cannot be used.
        JudgeUnavailable: The key is missing, and no answer is stored yet.
    """
    if replay is not None:
        source = LoggedModel(replay)
        if log is not None and log.resolve() == replay.resolve():
            raise InvalidSetting("A run cannot be replayed into the log that answers it.", got=log, fix="another --out")
        return ModelClient(source, log=CallLog(log))
    if llm.startswith(PACK):
        if settings:
            raise InvalidSetting("A pack takes no settings.", got=sorted(settings))
        return ModelClient(read_pack(llm.removeprefix(PACK)), log=CallLog(log))
    name, settings = _named(llm, settings or {})
    if name not in known("judges"):
        raise UnknownName("language model", name, [*known("judges"), "pack:NAME", "FILE.yaml"])
    model = chat_model(name, {**(ENDPOINT if name == "endpoint" else {}), **settings})
    variable = getattr(model, "key_variable", "")
    secret = os.environ.get(variable, "").strip() if variable else ""
    opened = CallLog(log)
    client = ModelClient(model, log=opened, budget=RunBudget(model, opened.records), secret=secret)
    try:
        require_key: Callable[[], object] | None = getattr(model, "require_key", None)
        if require_key is not None and not opened.records and not client.has_answered:
            require_key()
    except BaseException:
        opened.close()
        raise
    return client


def require_task(llm: str, task: str) -> None:
    """Raise InvalidSetting if `llm` is a pack for another environment than `task`, UnknownName for an unknown pack."""
    if llm.startswith(PACK):
        read_pack(llm.removeprefix(PACK)).require(task)


def _named(llm: str, settings: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return name and settings of a judge, read from a file if `llm` names one."""
    if not llm.endswith((".yaml", ".yml")):
        return llm, settings
    found = read_yaml(Path(llm))
    if not isinstance(found, dict) or found.keys() - {"judge", "settings"} or not isinstance(found.get("settings") or {}, dict):
        got = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        raise InvalidSetting(f"{llm} is not a language model.", got=got, allowed="the keys judge (endpoint) and settings")
    return str(found.get("judge", "endpoint")), {**(found.get("settings") or {}), **settings}

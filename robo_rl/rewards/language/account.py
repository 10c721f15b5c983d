"""What a run has asked and paid, by purpose: from its log alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from robo_rl.rewards.language.call_log import ENDED, Record
from robo_rl.types import Metrics

PAID = "server"
"""Origin of the replies that cost something in this run."""


def spent(records: Sequence[Record]) -> Metrics:
    """Returns how many replies there are, how many of them were paid for in this run, and their tokens and cost."""
    replies = _replies(records)
    paid = [record for record in replies if record["origin"] == PAID]
    counts = {"replies": len(replies), "paid": len(paid), "tokens": sum(map(_tokens, paid)), "cost": sum(map(_cost, paid))}
    return {f"llm/{name}": float(count) for name, count in counts.items()}


def account(records: Sequence[Record]) -> str:
    """Returns a table: for each purpose prompts, replies, how they ended, tokens and cost; then who answered."""
    if not records:
        return "nothing was asked"
    replies = _replies(records)
    rows = [_row(purpose, replies) for purpose in dict.fromkeys(record["purpose"] for record in replies)]
    head = (
        f"{'purpose':20} {'prompts':>7} {'replies':>7} {'paid':>5} {'tokens in':>9} {'out':>8} {'cost':>9} {'mean s':>7}  ended"
    )
    lines = [head, *rows, *([_row("", replies)] if len(rows) > 1 else [])]
    names = ", ".join(sorted({repr(record["model"]) for record in replies if record["model"]})) or "nobody"
    lines.append(f"{', '.join(sorted({record['llm'] for record in records}))}, answered by {names}")
    paid = [record for record in replies if record["origin"] == PAID and record["status"] in ("ok", "cut", "garbage")]
    if uncounted := sum(not _tokens(record) for record in paid):
        lines.append(f"{uncounted} replies came without a count of tokens: their cost is not known")
    if ended := [record for record in records if record["status"] == ENDED]:
        lines.append(f"ended: {ended[-1]['raw'].splitlines()[0]}")
    return "\n".join(lines)


def _row(purpose: str, replies: Sequence[Record]) -> str:
    """Returns a line for one purpose, or for all of them where it is empty."""
    own = [record for record in replies if purpose in ("", record["purpose"])]
    paid = [record for record in own if record["origin"] == PAID]
    prompts, spoken = sum(record["prompt_tokens"] for record in paid), sum(record["completion_tokens"] for record in paid)
    seconds = sum(record["seconds"] for record in paid) / max(1, len(paid))
    asked = len({record["request"] for record in own})
    ends = ", ".join(f"{count} {status}" for status, count in Counter(record["status"] for record in own).most_common())
    return (
        f"{purpose or 'all':20} {asked:7} {len(own):7} {len(paid):5} {prompts:9} {spoken:8} {sum(map(_cost, paid)):9.4g} "
        f"{seconds:7.1f}  {ends}"
    )


def _replies(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record["status"] != ENDED]


def _tokens(record: Record) -> int:
    return int(record["prompt_tokens"]) + int(record["completion_tokens"])


def _cost(record: Record) -> float:
    return float(record["cost"])

"""robo-rl audit: one page that says whether to trust a reward, and why."""

from __future__ import annotations

import json

from robo_app.arguments.free_settings import as_words
from robo_app.rewards.auditing import AuditOrder, audit_labels, audit_model, progress_hint
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash, figures_of
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.audit.evidence import progress_of
from robo_rl.rewards.audit.page import write_audit
from robo_rl.runs.run import write_text

EXAMPLES = """robo-rl audit oracle --dataset data/pick --out audits/oracle
robo-rl audit preference --reward.settings.folder rewards/pick --dataset data/pick --out audits/learned
robo-rl audit my-reward.yaml --dataset data/pick --wrong-text "push the red cube" --out audits/mine
robo-rl audit --labels mine --dataset data/pick --out audits/labels     (labels that are there already)
robo-rl audit oracle --dataset data/reach --progress near:goal_from_gripper --shape gain --out audits/dense"""


def run(arguments: AuditOrder) -> int:
    """Audit, showing progress; write the page and the figures, and print the verdict."""
    dataset, progress = Dataset(arguments.dataset), progress_of(arguments.progress)
    entries = [entry for entry in dataset.entries()[: arguments.episodes or None] if entry.steps]
    if not entries:
        raise InvalidSetting(f"{dataset.path} has no episodes.", fix="record some: robo-rl record --append")
    name, found = (audit_labels if arguments.labels else audit_model)(arguments, dataset, entries, progress)
    figures = figures_of(entries)
    facts = {
        "reward": name,
        "dataset": str(dataset.path),
        "content": content_hash(entries),
        "episodes": figures["episodes"],
        "steps": figures["steps"],
        "success": figures["success"],
        "progress": str(progress),
        "shape": arguments.shape,
        "settings": as_words(arguments.settings),
        "wrong text": arguments.wrong_text or ", ".join(as_words(arguments.wrong_settings)),
        "seed": arguments.seed,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "audit.json", json.dumps(found.to_json() | {"facts": facts}, indent=1, allow_nan=False))
    page = write_audit(found, facts, arguments.out / "audit.html")
    print(f"{name}: {found.verdict.headline}")
    reasons = "".join(f"  - {reason}\n" for reason in found.verdict.reasons)
    print(f"{reasons}{progress_hint(found, arguments.progress, dataset, entries[0])}{page}")
    return 0

"""README.md (card) of a run or a dataset that is pushed: front matter for the hub, and the facts of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from robo_app.sharing.manifest import Manifest
from robo_datasets.dataset import Dataset
from robo_rl.report.headline import headline
from robo_rl.report.reading import read_runs
from robo_rl.spec.environment import EnvironmentSpec


def card_of(folder: Path, manifest: Manifest) -> str:
    """Return the text of README.md for the run or dataset in a folder."""
    return _of_run(folder, manifest) if manifest.kind == "run" else _of_dataset(folder, manifest)


def _of_run(folder: Path, manifest: Manifest) -> str:
    runs = read_runs([folder])
    found, final = headline(runs), runs[0].final
    front = {
        "library_name": "robo-rl",
        "pipeline_tag": "robotics" if runs[0].spec and runs[0].spec.action.mode != "discrete" else "reinforcement-learning",
        "tags": ["robo-rl", "reinforcement-learning", str(found.facts["algorithm"]), str(found.facts["environment"])],
        **_index(manifest.name, found.facts["environment"], final),
    }
    facts = "".join(f"| {name} | {value} |\n" for name, value in found.facts.items())
    result = f"```\n{final}\n```\n" if final else "The run has no final evaluation.\n"
    return f"""{_front(front)}
# {manifest.name}

**{found.number}** {found.meaning}. {found.verdict} {found.caveat}

| fact | value |
|---|---|
{facts}
## Result

{result}
## Use

```bash
robo-rl pull ADDRESS --out runs/{manifest.name}
robo-rl evaluate {manifest.name}
robo-rl export {manifest.name} --out exported
```

{_interface(runs[0].spec)}
"""


def _index(name: str, environment: str, final: Any) -> dict[str, Any]:
    """Return the final evaluation in the format `model-index` of the hub; empty if there is none."""
    if final is None:
        return {}
    metrics = [{"type": "mean_reward", "value": round(final.mean_return.estimate, 4), "name": "mean return"}]
    if final.success_rate is not None:
        metrics.append({"type": "success_rate", "value": round(final.success_rate.estimate, 4), "name": "success rate"})
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    results = [{"task": task, "dataset": {"name": environment, "type": environment}, "metrics": metrics}]
    return {"model-index": [{"name": name, "results": results}]}


def _of_dataset(folder: Path, manifest: Manifest) -> str:
    dataset = Dataset(folder)
    entries, card = dataset.entries(), dataset.card
    judged = [entry.success for entry in entries if entry.success is not None]
    facts = {
        "environment": dataset.spec.name,
        "episodes": len(entries),
        "steps": sum(entry.steps for entry in entries),
        "successes": f"{sum(judged)} of {len(judged)}" if judged else "not judged",
        "instruction": dataset.spec.instruction or "none",
        **{name: value for name, value in card.items() if isinstance(value, str | int | float)},
    }
    rows = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    front = {"task_categories": ["robotics"], "tags": ["robo-rl", "robotics", dataset.spec.name]}
    return f"""{_front(front)}
# {manifest.name}

| fact | value |
|---|---|
{rows}
## Use

```bash
robo-rl pull ADDRESS --out data/{manifest.name}
robo-rl data info data/{manifest.name}
```

{_interface(dataset.spec)}
"""


def _interface(spec: EnvironmentSpec | None) -> str:
    if spec is None:
        return ""
    seen = "".join(
        f"| `{name}` | {list(array.shape)} | {array.dtype} | {array.unit} | {array.frame or ''} | {array.role} |\n"
        for name, array in spec.observation.items()
    )
    action = spec.action
    moved = "choices: " + ", ".join(action.names) if action.is_discrete else _elements(action)
    period = f", every {action.control_period:g} s" if action.control_period else ""
    return f"""## Interface

| observation | shape | type | unit | frame | role |
|---|---|---|---|---|---|
{seen}
Action ({action.mode}{period}): {moved}
"""


def _elements(action: Any) -> str:
    rows = zip(action.names, action.low, action.high, action.units, strict=True)
    return ", ".join(f"{name} {low:g} to {high:g} {unit}" for name, low, high, unit in rows)


def _front(values: dict[str, Any]) -> str:
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---\n"

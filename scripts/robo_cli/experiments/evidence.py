"""robo-rl evidence: list methods by level of evidence, with counts; check the statements against archives."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from robo_rl.entry_points import known
from robo_rl.evidence import FILE, LEVELS, Evidence, evidence_of, statements
from robo_rl.papers import Group, papers
from robo_rl.runs.run import write_text

EXAMPLES = """robo-rl evidence
robo-rl evidence --check     (computes every level from docs/benchmarks; 1 if a statement claims more)
robo-rl evidence --fill      (writes sentences from their templates and archives)"""
STATED: tuple[Group, ...] = ("learners", "rewards", "wrappers", "task_samplers")
"""Groups whose components all state their evidence."""


@dataclass(frozen=True)
class EvidenceOrder:
    """List learners, rewards, wrappers, samplers and advantages by level of evidence, with counts."""

    check: bool = False
    """Compute levels and sentences from the archives, and name those that differ."""
    fill: bool = False
    """Write the sentences of templates."""
    archives: Path = Path("docs/benchmarks")
    """Folder of the archives."""


def run(arguments: EvidenceOrder) -> int:
    """Print the list; return 1 if a statement does not hold."""
    stated = statements()
    places = {*stated, *((group, name) for group in STATED for name in known(group))}
    found = {place: stated.get(place) or evidence_of(*place) for place in sorted(places)}
    if arguments.fill:
        return fill(arguments.archives)
    for level in LEVELS:
        counts = Counter(group for (group, _), each in found.items() if each.level == level)
        print(f"{level}: {counts.total()} ({', '.join(f'{count} {group}' for group, count in sorted(counts.items()))})")
        for (group, name), each in found.items():
            if each.level == level:
                print(f"  {group:10} {name:22} {each.sentence}")
    problems = wrong(stated, arguments.archives) if arguments.check else []
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


def wrong(stated: dict[tuple[str, str], Evidence], archives: Path) -> list[str]:
    """Return a line for each statement whose level or figures the archives do not bear."""
    from robo_app.experiments.levels import computed_level, filled

    lines = []
    for (group, name), evidence in stated.items():
        level = computed_level(evidence, archives)
        if LEVELS.index(level) > evidence.rank:
            lines.append(f"{group} {name}: stated as {evidence.level}, archives and tests allow {level}")
        if (sentence := filled(evidence, archives)) != evidence.sentence:
            lines.append(f"{group} {name}: the sentence is {evidence.sentence!r}, the archive says {sentence!r}")
    return lines


def fill(archives: Path) -> int:
    """Write the sentences of all templates into their files."""
    from robo_app.experiments.levels import filled

    stated = {evidence.template: evidence for evidence in statements().values() if evidence.template}
    for file in (FILE, *(paper.folder / "paper.toml" for paper in papers().values())):
        text = file.read_text(encoding="utf-8")
        pattern = re.compile(r'^sentence = .*\n(?=template = (".*")$)', re.MULTILINE)

        def sentence(match: re.Match[str]) -> str:
            words = filled(stated[json.loads(match[1])], archives)
            return f"sentence = {json.dumps(words, ensure_ascii=False)}\n"

        if (now := pattern.sub(sentence, text)) != text:
            write_text(file, now)
            print(f"written  {file}")
    return 0

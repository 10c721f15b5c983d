"""Stores episodes as fast as it can and says so after each: to be killed at a random moment.

kill_recorder.py DATASET STEPS
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from robo_datasets.dataset import Dataset
from robo_datasets.repair import repair
from robo_rl.rollout.journal import Journal
from robo_rl.types import ActionSource, Episode, Transition


def journal_of(writer, episode: Episode) -> Journal:
    """Writes every step, as recording does."""
    journal = writer.journal(writer.dataset.spec)
    journal.begin(_at(episode, 0), seed=episode.seed, instruction=episode.instruction, source="killed")
    for step in range(len(episode)):
        is_last = step == len(episode) - 1
        journal.step(
            Transition(
                observation=_at(episode, step),
                action=episode.actions[step],
                reward=float(episode.rewards[step]),
                next_observation=_at(episode, step + 1),
                terminated=episode.terminated and is_last,
                truncated=episode.truncated and is_last,
                policy_action=episode.policy_actions[step],
                source=ActionSource(int(episode.sources[step])),
                info={} if episode.success is None or not is_last else {"success": episode.success},
            )
        )
    return journal


def _at(episode: Episode, step: int) -> dict[str, np.ndarray]:
    return {name: array[step] for name, array in episode.observations.items()}


def main(path: str, steps: int) -> None:
    from conftest import episode_of

    dataset = Dataset(Path(path))
    template = episode_of(0, steps)
    with dataset.writer() as writer:
        repair(writer, thorough=False)
        number = len(dataset)
        while True:
            number += 1
            episode = replace(template, seed=number, rewards=np.full(steps, number, np.float32))
            journal = journal_of(writer, episode)
            print("begun", number, flush=True)
            entry = writer.add(episode, identity=journal.path.stem)
            journal.remove()
            print("stored", number, entry.file, flush=True)


if __name__ == "__main__":
    sys.path[:0] = [str(folder) for folder in Path(__file__).parents[:2]]
    main(sys.argv[1], int(sys.argv[2]))

"""Train a policy, measure it, watch it, look at its episodes: run it whole, or cell by cell as a notebook."""

# %% An environment: plain Gymnasium, with units, frames and limits in its spec
import os

import matplotlib

matplotlib.use("Agg")  # leave this line out in a notebook
import matplotlib.pyplot as plt
import numpy as np

import robo_rl

STEPS = int(os.environ.get("STEPS", "6000"))  # a minute or two on one core

environment = robo_rl.make_environment("robo/ArmPick-v0", action_repeat=3)
observation, info = environment.reset(seed=0)
print({name: value.shape for name, value in observation.items()})

# %% Train: a recipe that comes with the package, with some of its values changed
run = robo_rl.train(
    "arm-pick-rlpd",
    seed=1,
    steps=STEPS,
    learner={"lr": 1e-3},
    evaluation={"every": max(1, STEPS // 4), "episodes_during": 5, "episodes": 10, "videos": 0},
    record_episodes=True,
    progress=True,
)
print(run, run.checkpoints, run.report)

# %% Measure: seeds that no training ever sees, a rate with its interval
evaluation = run.evaluate(episodes=20)
print(evaluation)
rate = evaluation.success_rate
assert rate is not None
print(f"success between {rate.low:.0%} and {rate.high:.0%}, with 95 % confidence")

# %% Act: the policy is an object, in any environment of the same spec
policy = robo_rl.load_policy(run)
episode = robo_rl.run_episode(environment, policy, seed=7, deterministic=True)
print(f"{len(episode)} steps, return {episode.undiscounted_return:g}, ended by {episode.stop_reason}")

# %% Look back: every training episode, exploration included, is in a dataset
dataset = robo_rl.open_dataset(run.path / "episodes")
successes = np.array([bool(recorded.success) for recorded in dataset])
print(f"{len(dataset)} training episodes, {successes[-20:].mean():.0%} of the last twenty successful")

# %% Plot a metric
curve = run.curve("eval/success_rate")
plt.plot(curve.steps, curve.values, marker="o")
plt.xlabel("environment steps")
plt.ylabel("success rate of 5 episodes")
plt.ylim(-0.05, 1.05)
plt.savefig("first_policy.png")

# %% Train longer: the same run, as if it had been asked for at once
robo_rl.resume(run, steps=STEPS + max(1, STEPS // 4), progress=True)
print(run.evaluation)
environment.close()

"""The benchmark of reward models: scores follow from state, the words alone tell nothing, and each fault has its figure."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest

from factories import make_spec
from robo_bench.scored_clips import SCORES, clips_of, episode_of, facts_of, scored, scores_of
from robo_rl.environments.captioned_pictures import CaptionedPictures
from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.evaluation.statistics import wilson
from robo_rl.rewards.identity import settings_hash
from robo_rl.rewards.images.picture_reward import PictureReward
from robo_rl.rewards.success.classifier import ClassifierConfig, SuccessNetwork
from robo_rl.rewards.success.classifier_reward import ClassifierReward, save
from robo_rl.rewards.success.examples import Measured
from robo_rl.rewards.synthetic import Constant, Oracle
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Labels

COLOURS = ("red", "green", "blue")


def pictures_of_lights(scenes: int = 60, poses: int = 8) -> CaptionedPictures:
    """Two of three lights are in each scene; the brightness of a light is how far it is "done"."""
    random, count = np.random.default_rng(0), scenes * poses
    firsts = np.arange(count) // poses * poses
    there = np.repeat(np.array([random.permutation([True, True, False]) for _ in range(scenes)]), poses, axis=0)
    progress = np.where(there, random.choice([0.1, 0.3, 0.5, 0.7, 0.9, 1.0], (count, 3)), 0)
    progress[firsts] = np.where(there[firsts], 0.1, 0)
    pictures = np.rint(200 * progress[:, None, None] + random.normal(0, 1, (count, 8, 8, 3))).clip(0, 255).astype(np.uint8)
    pictures[:, 0] = 200  # never flat
    positions = np.where(there[..., None], 1.0, np.nan).repeat(3, axis=2)
    return CaptionedPictures(
        environment="test/Lights", camera="front", pictures=pictures, firsts=firsts, slots=("gripper", *COLOURS),
        positions=np.concatenate([np.ones((count, 1, 3)), positions], axis=1).astype(np.float32),
        places=np.zeros((count, 4, 3), np.float32), seen=np.ones((count, 4), np.bool_),
        captions=(), truth=np.zeros((count, 0), np.bool_),
        instructions=tuple((f"light the {colour} lamp", f"turn {colour} on") for colour in COLOURS),
        named=tuple((colour,) for colour in COLOURS), progress=progress.astype(np.float32), complete=progress == 1,
    )  # fmt: skip


LIGHTS = pictures_of_lights()
CLIPS = clips_of(LIGHTS, each=20)


@dataclass(frozen=True, kw_only=True)
class Lamp(PictureReward):
    """Brightness of the lamp that the words name, beyond that at the start."""

    deaf: bool = False

    @property
    def identity(self):
        return "lamp", settings_hash(self)

    def score(self, pictures, firsts, instruction):
        now, began = (each[:, 1:].mean((1, 2)) / 200 for each in (pictures, firsts))
        done = np.clip((now - began) / 0.9, 0, 1)
        words = [instruction.find(colour) >= 0 for colour in COLOURS]
        values = done.max(1) if self.deaf else done[:, words.index(True)]
        return Labels(values.astype(np.float32), np.ones(len(values), np.bool_))


def test_scores_by_hand():
    scores = scores_of(LIGHTS)
    wanted = {0.1: 1, 0.3: 1, 0.5: 2, 0.7: 3, 0.9: 4, 1.0: 5}  # of what was left at 0.1: 0, 2/9, 4/9, 6/9, 8/9
    for row in range(40):
        for column in range(3):
            is_there = np.isfinite(LIGHTS.positions[row, column + 1, 0])
            assert scores[row, column] == (wanted[round(float(LIGHTS.progress[row, column]), 1)] if is_there else 0)
    done = replace(LIGHTS, complete=np.ones_like(LIGHTS.complete))
    assert not scores_of(done).any()  # what is done at the start shows nothing


def test_scores_are_balanced_and_wrong_instructions_are_false():
    counts = Counter((clip.instruction, clip.score) for clip in CLIPS)
    assert set(counts) == {(index, score) for index in range(3) for score in SCORES} and set(counts.values()) == {20}
    wrong = [clip for clip in CLIPS if clip.is_counterfactual]
    assert len(wrong) > 40
    for clip in wrong:
        assert not LIGHTS.complete[clip.picture, clip.instruction] and LIGHTS.complete[clip.picture].any() and clip.score <= 2
    for clip in CLIPS:
        assert LIGHTS.complete[clip.picture, clip.instruction] == (clip.score == 5)
        assert clip.words in LIGHTS.instructions[clip.instruction]
    facts = facts_of(CLIPS)
    assert facts["clips"] == 300 and facts["by_score"]["5"] == 60 and facts["counterfactual"] == len(wrong)
    assert clips_of(LIGHTS, each=20) == CLIPS and clips_of(LIGHTS, each=20, seed=1) != CLIPS
    with pytest.raises(InvalidSetting, match="clips of every score"):
        clips_of(replace(LIGHTS, complete=np.zeros_like(LIGHTS.complete)))


def test_a_clip_is_an_episode():
    clip = next(clip for clip in CLIPS if clip.score == 4)
    episode = episode_of(LIGHTS, clip)
    np.testing.assert_array_equal(episode.observations["camera_front"][1], LIGHTS.pictures[clip.picture])
    np.testing.assert_array_equal(episode.observations["camera_front"][0], LIGHTS.pictures[LIGHTS.firsts[clip.picture]])
    assert episode.instruction == clip.words and episode.rewards.tolist() == [0.75] and not episode.success


def test_each_fault_has_its_figure():
    right, deaf, yes, oracle = (scored(model, LIGHTS, CLIPS) for model in (Lamp(), Lamp(deaf=True), Constant(1.0), Oracle()))
    assert oracle["error"].interval.estimate == 0 and oracle["correlation"].interval.estimate == pytest.approx(1)
    assert right["error"].high < 0.7 and right["wrong"].high < 2.2 and right["correlation"].low > 0.9
    assert deaf["wrong"].low > 4.5 and deaf["error"].low > right["error"].high
    assert yes["error"].interval.estimate == pytest.approx(2) and not yes["correlation"].is_measured  # says 5 to everything
    for each in (right, deaf, yes):
        assert each["text_alone"].low >= 1.1  # the best constant errs by 1.2
        assert each["missing"].interval.estimate == 0


def test_answers_that_are_no_share_have_no_error_but_an_order():
    class Louder(Oracle):
        def label(self, episode):
            return replace(super().label(episode), values=7 * episode.rewards)

    found = scored(Louder(), LIGHTS, CLIPS)
    assert not found["error"].is_measured and found["correlation"].interval.estimate == pytest.approx(1)
    assert found["error"].to_json()["estimate"] is None


def saved_classifier(folder, side: int = 8, guard: str = "", camera: str = "camera_front") -> str:
    picture = ArraySpec("camera_front", (side, side, 3), "uint8", role="image")
    spec = make_spec("test/Lights", ArraySpec("light", (1,)), picture)
    config, rate = ClassifierConfig(image_size=8, hidden=4, camera=camera, guard=guard), wilson(1, 2)
    network = SuccessNetwork((side, side, 3) if camera else (1,), 4, 8)
    save(folder, network, config, spec, Measured(0.5, rate, rate, rate, 2, 2, (), 0.0, rate), {})
    return str(folder)


def test_picture_classifier_is_scored_on_clips(tmp_path):
    found = scored(ClassifierReward(folder=saved_classifier(tmp_path / "a")), LIGHTS, CLIPS[:40])
    assert found["error"].is_measured and found["missing"].interval.estimate == 0
    for name, more, error, message in (
        ("b", {"side": 16}, SpecMismatch, r"size: \(8, 8, 3\) of the pictures, \(16, 16, 3\) of test/Lights"),
        ("c", {"guard": "light=0.5:"}, InvalidSetting, "guarded false"),
        ("d", {"camera": ""}, SpecMismatch, "fingerprint: '' of the episode"),
    ):
        with pytest.raises(error, match=message):
            scored(ClassifierReward(folder=saved_classifier(tmp_path / name, **more)), LIGHTS, CLIPS[:5])

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest

import robo_rl.report.films as films_module
from robo_rl.errors import RunNotFound
from robo_rl.evaluation.evaluation import Evaluation, evaluation_seeds
from robo_rl.evaluation.measures import Measure
from robo_rl.evaluation.statistics import wilson
from robo_rl.evaluation.video import write_mp4
from robo_rl.report import write_report
from robo_rl.report.annotating import annotation_warnings
from robo_rl.report.charts import Series, line_chart, short, thinned, ticks
from robo_rl.report.headline import duration, verdict
from robo_rl.runs.run import Run
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec

SPEC = EnvironmentSpec(
    "robo/ArmPick-v0",
    ObservationSpec((ArraySpec("joint_position", (7,), unit="rad"),)),
    ActionSpec(("x", "y", "z"), (-1.0,) * 3, (1.0,) * 3, ("m",) * 3, "end_effector_delta", 0.05, "base"),
    instruction="pick up the cube",
    max_steps=100,
    success_rule="the cube is held 10 cm above the table",
)
RECIPE = "name: {name}\nenvironment:\n  name: robo/ArmPick-v0\nalgorithm: rlpd\nsteps: 15000\nseed: {seed}\n"


def outcome(rate, episodes=50, **more):
    generator = np.random.default_rng(int(rate * 1000) + episodes)
    successes = tuple(bool(s) for s in generator.permutation(episodes) < rate * episodes)
    values = {
        "environment": SPEC.name,
        "spec_fingerprint": SPEC.fingerprint,
        "success_rule": SPEC.success_rule,
        "seeds": tuple(evaluation_seeds(episodes)),
        "returns": tuple(float(s) * 0.9 + generator.random() * 0.1 for s in successes),
        "lengths": tuple(int(generator.integers(25, 60)) if s else 100 for s in successes),
        "successes": successes,
        "stop_reasons": tuple("goal" if s else "time_limit" for s in successes),
        "deterministic": True,
        "duration": 9.5,
        "training_seed": 0,
    }
    return Evaluation(**(values | more))


def make_run(root, *, seed=0, name="arm-pick-rlpd", spec=SPEC, rate=0.94, films=True):
    """A finished run in the formats of the package, with a learning curve that rises to `rate`."""
    run = Run.create(root, recipe_name=name, seed=seed, recipe=RECIPE.format(name=name, seed=seed), spec=spec)
    generator = np.random.default_rng(seed)
    with run:
        for step in range(200, 15001, 200):
            learned = rate / (1 + np.exp(-(step - 6000 - 500 * seed) / 1200))
            metrics = {
                "rollout/success_rate": float(np.clip(learned * 0.9 + generator.normal(0, 0.02), 0, 1)),
                "rollout/ep_rew_mean": float(learned * 0.9 + generator.normal(0, 0.02)),
                "train/critic_loss": float(np.exp(-step / 4000) + generator.random() * 0.05),
                "train/ent_coef": float(np.exp(-step / 6000)),
                "time/fps": 58.0,
                "time/simulate_s": step * 0.0022,
                "time/infer_s": step * 0.0006,
                "time/update_s": step * 0.0145,
                "time/log_s": step * 0.0002,
                "time/evaluation_s": step * 0.0012,
                "time/checkpoint_s": step * 0.0003,
            }
            run.log(step, metrics, elapsed=step * 0.0195)
    (run.path / "evaluations").mkdir()
    for step in range(2500, 15001, 2500):
        during = outcome(round(rate / (1 + np.exp(-(step - 6000 - 500 * seed) / 1200)), 2), 20)
        (run.path / "evaluations" / f"{step:010d}.json").write_text(json.dumps(during.to_json()))
    final = outcome(rate)
    if films:
        (run.path / "videos").mkdir()
        chosen = [final.seeds[final.successes.index(True)], *([final.seeds[final.successes.index(False)]] if rate < 1 else [])]
        videos = {s: f"final-seed{s}.mp4" for s in chosen}
        for file in videos.values():
            write_mp4(run.path / "videos" / file, moving_square(), 20.0)
        final = outcome(rate, videos=videos)
    (run.path / "evaluation.json").write_text(json.dumps(final.to_json()))
    return run.path


def moving_square():
    for step in range(30):
        picture = np.full((120, 160, 3), (200, 215, 230), np.uint8)
        picture[50:80, 4 * step : 4 * step + 30] = (200, 60, 40)
        yield picture


class Page(HTMLParser):
    """Collects text, addresses and tags of a page, and checks that they nest."""

    VOID = ("meta", "img")

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.addresses, self.tags = [], "", [], []
        self.feed(html)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "poster", "data", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def page_of(runs, tmp_path):
    html = write_report(runs, tmp_path / "out" / "report.html").read_text()
    return SimpleNamespace(html=html, **vars(Page(html)))


@pytest.mark.slow
def test_a_finished_run_is_told_on_one_page_without_network(tmp_path):
    page = page_of([make_run(tmp_path)], tmp_path)
    for words in (
        "pick up the cube",
        "94%",
        "success in 47 of 50 episodes; 95% interval 84% to 98%",
        "It solves the task most of the time.",
        "One training seed: the interval covers the evaluation episodes, not training.",
        "the cube is held 10 cm above the table; an episode is a success if the environment reported success at any",
        "47 × goal, 3 × time_limit",
        "1000000 to 1000049, never used in training",
        "4 min 52 s for 15,000 steps",
        "learner updates 3 min 38 s (74%)",
        "algorithm: rlpd",
    ):
        assert words in page.text, words
    assert page.tags.count("video") == 2 and page.tags.count("svg") >= 3
    assert page.addresses and all(address.startswith("data:") for address in page.addresses)
    assert "http" not in page.html.replace("http-equiv", "") and "@import" not in page.html and "url(" not in page.html
    assert "<title>seed 0: 94% [84%, 98%] at step 15k</title>" in page.html
    assert "Worth knowing" not in page.text


def test_text_of_a_run_is_never_code(tmp_path):
    evil = "<script>alert(1)</script>"
    path = make_run(tmp_path, spec=EnvironmentSpec(**(vars(SPEC) | {"instruction": evil, "success_rule": evil})))
    (path / "recipe.yaml").write_text(f"name: '{evil}'\nseed: 0\n")
    (path / "run.json").write_text(json.dumps({"command": evil, "seed": evil, "machine": {evil: evil}}))
    reasons = (evil,) * 50
    (path / "evaluation.json").write_text(json.dumps(outcome(0.5, success_rule=evil, stop_reasons=reasons).to_json()))
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 16000, "time": 1.0, f"train/{evil}": 1.0}) + "\n")
    page = page_of([path], tmp_path)
    assert "script" not in page.tags
    assert page.text.count(evil) >= 6


def test_unfinished_run_with_torn_log_has_a_report(tmp_path):
    path = make_run(tmp_path)
    (path / "evaluation.json").unlink()
    for file in (path / "evaluations").iterdir():
        file.unlink()
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 15200, "rollout/succ')
    page = page_of([path], tmp_path)
    assert "Not evaluated yet. In training it last succeeded in" in page.text
    assert "There is no final evaluation: the run is unfinished, or was stopped." in page.text
    assert "15,000" in page.text and "15,200" not in page.text
    assert "One training seed" not in page.text  # there is no interval to qualify


def test_a_run_that_has_only_begun_has_a_page(tmp_path):
    path = Run.create(tmp_path, recipe_name="new", seed=1, recipe=RECIPE.format(name="new", seed=1), spec=SPEC).path
    page = page_of([path], tmp_path)
    assert "No metrics were logged." in page.text


@pytest.mark.parametrize("file", ["run.json", "spec.json", "metrics.jsonl", "evaluation.json", "evaluations/0000005000.json"])
def test_a_damaged_file_is_a_warning(tmp_path, file):
    path = make_run(tmp_path, films=False)
    (path / file).write_text("{ damaged\n")
    assert f"{file} cannot be read: " in page_of([path], tmp_path).text
    (path / file).write_text("[]\n")
    page_of([path], tmp_path)


def test_a_damaged_or_missing_film_is_a_warning(tmp_path):
    path = make_run(tmp_path)
    first, second = sorted((path / "videos").iterdir())
    first.write_bytes(b"no film")
    second.unlink()
    page = page_of([path], tmp_path)
    assert f"{first.name} cannot be read" in page.text and f"The film {second.name} is missing." in page.text


def test_films_beyond_the_room_become_strips(tmp_path, monkeypatch):
    path = make_run(tmp_path)
    monkeypatch.setattr(films_module, "ROOM", 10)
    page = page_of([path], tmp_path)
    assert page.tags.count("video") == 0 and page.tags.count("img") == 12


def test_warm_resumes_divergence_and_notes_are_said(tmp_path):
    path = make_run(tmp_path, films=False)
    facts = json.loads((path / "run.json").read_text())
    events = [{"step": 5000, "kind": "exact"}, {"step": 9000, "kind": "warm"}]
    (path / "run.json").write_text(json.dumps(facts | {"resumes": events}))
    reasons = ("sim_diverged", *outcome(0.9).stop_reasons[1:])
    final = outcome(0.9, stop_reasons=reasons, notes=("no video: no OpenGL",))
    (path / "evaluation.json").write_text(json.dumps(final.to_json()))
    text = page_of([path], tmp_path).text
    assert "Resumed warm at step 9000" in text and "Resumed warm at step 5000" not in text
    assert "The simulation diverged in 1 of 50 evaluation episodes." in text
    assert "No video: no OpenGL" in text


@pytest.mark.parametrize("is_hacked", [False, True])
def test_report_shows_both_returns_and_flags_hacking(tmp_path, is_hacked):
    path = make_run(tmp_path, films=False)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["reward/model_return"] = line["step"] * 1e-3
        line["rollout/success_rate"] = (15000 - line["step"] if is_hacked else line["step"]) / 15000
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts = json.loads((path / "run.json").read_text())
    reward = {"model": "embedded-progress", "weights": "0f", "completion_model": "embedded-completion"}
    (path / "run.json").write_text(json.dumps(facts | {"reward": reward}))
    text = page_of([path], tmp_path).text
    assert "Return by the reward model" in text and "embedded-progress, embedded-completion" in text
    assert ("the policy may have learnt to please the reward model" in text) == is_hacked


def test_an_annotator_that_stopped_or_mostly_failed_is_said(tmp_path):
    path = make_run(tmp_path, films=False)
    assert "annotator" not in page_of([path], tmp_path).text
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"annotation/stopped": 1.0, "annotation/failed": 0.6, "annotation/labels": 7.0, "reward/missing": 0.25}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page_of([path], tmp_path).text
    assert "The annotator has stopped: the policy learns from the 7 labels of before" in text
    assert "60% of the answers of the annotator were none" in text and "25% of all steps had a caption without a label" in text


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        (
            {"reward/missing": 1.0, "annotation/labels": 0.0, "annotation/captions": 83.0, "annotation/failed": 0.0},
            "100% of all steps had no reward of the model (0 labels of 83 captions)",
        ),
        ({"reward/missing": 0.6}, "60% of all steps had no reward of the model: the policy has hardly learned from it"),
        (
            {"subgoals/levels": 3.0, "subgoals/missing": 3.0, "subgoals/status_cut": 3.0},
            "0 of 3 levels have subgoals: 3 cut: the policy has hardly learned",
        ),
        (
            {"annotation/failed": 1.0, "annotation/status_too_many_requests": 4.0, "annotation/status_cut": 9.0},
            "9 cut, 4 too many requests",
        ),
        ({"reward/missing": 0.4, "subgoals/levels": 9.0, "subgoals/missing": 4.0}, ""),
    ],
)
def test_model_without_usable_answers_is_said(counts, told):
    found = annotation_warnings(counts)
    assert len(found) == bool(told) and told in "".join(found)


@pytest.mark.slow
def test_several_seeds_share_one_headline_judged_by_the_weakest(tmp_path):
    runs = [make_run(tmp_path, seed=seed, rate=rate, films=False) for seed, rate in enumerate((0.98, 0.5, 1.0))]
    page = page_of(runs, tmp_path)
    assert page.tags.count("h1") == 1 and "83%" in page.text
    assert "mean success of 3 training seeds, 150 episodes; lowest seed 50%, highest 100%" in page.text
    assert "Judged by its weakest seed: it solves the task often, but not reliably." in page.text
    for label in ("seed 0", "seed 1", "seed 2"):
        assert label in page.text


@pytest.mark.slow
def test_two_recipes_have_a_headline_and_a_colour_each(tmp_path):
    runs = [make_run(tmp_path, name=name, seed=seed, films=False) for name in ("sac", "rlpd") for seed in (0, 1)]
    page = page_of(runs, tmp_path)
    assert page.tags.count("h1") == 2 and "sac, seed 0" in page.text and "rlpd, seed 1" in page.text
    assert 'class="line c1"' in page.html and 'class="line c2"' not in page.html


def test_a_task_without_success_shows_its_return(tmp_path):
    path = make_run(tmp_path, films=False)
    final = outcome(0.5, successes=(None,) * 50, success_rule=None, returns=tuple(float(i) for i in range(50)))
    (path / "evaluation.json").write_text(json.dumps(final.to_json()))
    text = page_of([path], tmp_path).text
    assert "24.5" in text and "This task has no notion of success." in text and "mean return over 50 episodes" in text


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunNotFound, match=r"is not a run folder\.\n(.*\n)?.*allowed: a folder that holds recipe\.yaml"):
        write_report([tmp_path], tmp_path / "report.html")


def test_ticks_are_few_round_and_within():
    assert ticks(0, 15000) == [0, 5000, 10000, 15000]
    assert ticks(0.0, 1.0) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert ticks(-0.03, 1.02) == [0.0, 0.5, 1.0]
    for low, high in ((-3.2, 8.1), (1e-7, 3e-7), (0.0, 1e-9), (-2e6, 1e6)):
        found = ticks(low, high)
        assert low <= found[0] and found[-1] <= high * (1 + 1e-9) and 2 <= len(found) <= 6


def test_charts_leave_out_what_is_not_finite_and_thin_long_lines():
    points = thinned([(float(i), float(i) if i % 5 else np.nan) for i in range(5000)])
    assert len(points) <= 240 and points[-1] == (4999.0, 4999.0) and np.isfinite(points).all()
    assert line_chart([Series("empty", 0, [])], title="nothing") == ""
    assert "nan" not in line_chart([Series("one", 0, [(0.0, 2.0)], band=[(0.0, np.nan, np.nan)])], title="one")


def test_words_for_numbers():
    assert [short(v) for v in (0.5, 950, 20000, 1_500_000)] == ["0.5", "950", "20k", "1.5M"]
    assert [duration(s) for s in (12.4, 292.4, 7260)] == ["12 s", "4 min 52 s", "2 h 1 min"]


@pytest.mark.parametrize(
    ("successes", "episodes", "sentence", "color"),
    [
        (50, 50, "It solves the task reliably.", "good"),
        (45, 50, "It solves the task most of the time.", "good"),
        (30, 50, "It solves the task often, but not reliably.", "middling"),
        (10, 50, "It solves the task now and then; more training, or another recipe, is needed.", "middling"),
        (0, 50, "It has not learned the task.", "bad"),
        (0, 30, "No success in 30 episodes; the true rate may be as high as 11%.", "bad"),
        (0, 1, "No success in 1 episode; the true rate may be as high as 79%.", "bad"),
        (1, 1, "Too few episodes to tell: 1 of 1 succeeded.", "middling"),
        (5, 10, "Too few episodes to tell: 5 of 10 succeeded.", "middling"),
    ],
)
def test_headline_says_no_more_than_the_episodes_show(successes, episodes, sentence, color):
    assert verdict(wilson(successes, episodes), successes, episodes) == (sentence, color)


def test_report_names_the_seed_and_defines_every_colour_it_uses(tmp_path):
    path = make_run(tmp_path, films=False)
    text = write_report([path], tmp_path / "page.html").read_text()
    assert "<dt>seed</dt><dd>0</dd>" in text and "everything else" in text
    drawn = set(re.findall(r'class="(?:fill|swatch|line|dot|band|faint) (c\d+)', text))
    assert drawn and all(f"--{color}:" in text and f".fill.{color} " in text for color in drawn)


@pytest.mark.slow
def test_report_has_extra_evaluations_measures_and_videos(tmp_path):
    path = make_run(tmp_path)
    measures = (Measure("distance", "km", "that was driven"), Measure("crashes", "1/km", "into others", per="distance"))
    told = {"distance": (0.5,) * 50, "crashes": (1.0, 0.0) * 25}
    reasons = tuple("crash" if crash else "goal" for crash in told["crashes"])
    film = {evaluation_seeds(50)[0]: "elsewhere.mp4"}
    elsewhere = outcome(0.5, measures=measures, measured=told, stop_reasons=reasons, videos=film)
    write_mp4(path / "videos" / "elsewhere.mp4", moving_square(), 20.0)
    (path / "evaluations" / "town-test.json").write_text(json.dumps(elsewhere.to_json()))
    page = page_of([path], tmp_path)
    for words in ("seed 0, town-test", "25 × crash, 25 × goal", "into others", "that was driven", "to 1.476"):
        assert words in page.text, words
    assert "seed 0, town-test · evaluation seed 1000000" in page.text and "ended by crash" in page.text
    assert page.tags.count("video") == 3


# in a browser

CHROMIUM = os.environ.get("ROBO_RL_CHROMIUM") or shutil.which("chromium")
LOOK = """<script>
addEventListener("load", () => {
  for (const details of document.querySelectorAll("details")) details.open = true
  const wide = [...document.querySelectorAll(".scroll")].filter(each => each.scrollWidth > each.clientWidth + 1)
  const tables = document.querySelectorAll(".scroll table").length
  document.body.setAttribute("data-seen", `${tables} tables, ${wide.length} too wide`)
})
</script>"""
LONG = (
    "route completion times the coefficient of the infraction that ended the episode, times 1 - the share of oncoming traffic"
)


def seen(page, width, folder):
    """Return how many tables a browser shows, and how many are wider than their place."""
    copy = folder / "looked-at.html"
    copy.write_text(page.read_text() + LOOK)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'browser'}", copy.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'data-seen="([^"]*)"', shown)
    assert found is not None, shown[-500:]
    return found[1]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
@pytest.mark.parametrize("count", [1, 3])
def test_no_column_of_a_report_is_cut_off(count, tmp_path):
    measures = (Measure("driving_score", "%", LONG), Measure("crashes", "1/km", LONG, per="driving_score"))
    told = {"driving_score": (88.5,) * 50, "crashes": (0.125,) * 50}
    runs = [make_run(tmp_path, seed=seed, name=f"drive-route-with-{'contrasting-' * 3}goals-{seed}") for seed in range(count)]
    for run in runs:
        (run / "evaluation.json").write_text(json.dumps(outcome(0.5, measures=measures, measured=told).to_json()))
    page = write_report(runs, tmp_path / "report.html")
    for width in (1280, 390):
        assert seen(page, width, tmp_path).endswith(" tables, 0 too wide")

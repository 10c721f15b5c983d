"""The page in a real browser while a training runs, and what its server refuses."""

import importlib.util
import json
import re
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from factories import axes, make_episode, make_spec, picture_spec
from robo_app.watching import films
from robo_app.watching.selection import Selection
from robo_app.watching.server import WatchServer
from robo_app.watching.view import View, write_snapshot
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting, RunError
from robo_rl.runs.newest_episode import NewestEpisode
from robo_rl.runs.run import Run

VIEWER = Path(__file__).parents[1] / "datasets" / "viewer" / "test_page_in_browser.py"
SPEC = make_spec("robot/Real", picture_spec(), action=axes("x", "y", control_period=0.05))
NASTY = "<img src=x onerror=\"document.title='stolen'\"><script>document.title='stolen'</script>"


def new_run(root, name="reach", seed=0, **recipe):
    text = json.dumps({"name": name, "algorithm": "sac", "steps": 100, "seed": seed} | recipe)
    return Run.create(root, recipe_name="reach", seed=seed, recipe=text, spec=SPEC)


def keep_episode(run, step):
    import numpy as np

    pictures = np.zeros((9, 32, 32, 3), np.uint8)
    pictures[..., 0] = step % 256
    NewestEpisode.of(make_episode({"camera_front": pictures}), kind="training", step=step, replays=False).write(run.path)


@contextmanager
def served(root, *names):
    with WatchServer(Selection(names or (str(root),), root), 0) as server:
        yield server.url


def read(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
        return answer.read(), answer.headers


def refusal_of(address, **headers):
    with pytest.raises(urllib.error.HTTPError) as refused:
        read(address, **headers)
    refused.value.close()
    return refused.value.code


@pytest.mark.slow
def test_page_waits_for_a_run_that_begins_later(tmp_path):
    with served(tmp_path / "runs", "latest") as url:
        assert b"Waits for <b>latest</b>" in read(f"{url}api/view")[0]
        run = new_run(tmp_path / "runs")
        time.sleep(1.1)  # a view is kept for a second
        found = read(f"{url}api/view")[0].decode()
    assert "Waits" not in found and run.path.name in found


def test_texts_of_a_run_are_escaped(tmp_path):
    run = new_run(tmp_path, name=NASTY)
    try:
        with run:
            run.log(1, {f"train/{NASTY}": 1.0, "human/x": float("nan"), "train/loss": float("nan")}, elapsed=1.0)
            run.note(1, NASTY)
            raise RunError(NASTY)
    except RunError:
        pass
    with served(tmp_path) as url:
        found = read(f"{url}api/view")[0].decode()
    assert "&lt;script&gt;" in found and "<script" not in found and "<img" not in found


def test_damaged_run_leaves_the_others_on_the_page(tmp_path):
    whole, damaged = new_run(tmp_path), new_run(tmp_path, seed=1)
    (damaged.path / "recipe.yaml").write_text("steps: [")
    with served(tmp_path) as url:
        found = read(f"{url}api/view")[0].decode()
        assert f'data-run="{whole.path.name}"' in found and f"<b>{damaged.path.name}</b>" in found
        assert f'data-run="{damaged.path.name}"' not in found


@pytest.mark.slow
def test_films_are_served_by_number_alone(tmp_path):
    run = new_run(tmp_path)
    keep_episode(run, 5)
    with served(tmp_path) as url:
        end = time.monotonic() + 60
        while not (address := re.search(r'src="/(api/films/\d+)"', read(f"{url}api/view")[0].decode())):
            assert time.monotonic() < end
            time.sleep(0.2)
        film, headers = read(url + address[1])
        assert film[4:8] == b"ftyp" and headers["content-type"] == "video/mp4"
        part, _ = read(url + address[1], Range="bytes=4-7")
        assert part == b"ftyp"
        for path in ("api/films/99", "api/films/..%2f..%2fetc%2fpasswd", "api/films/", "api/films/1/../../x"):
            assert refusal_of(url + path) == 404
        assert refusal_of(f"{url}api/view", Host="evil.example") == 403


def test_taken_port_is_one_error_and_leaves_no_thread(tmp_path):
    with served(tmp_path) as url, pytest.raises(InvalidSetting, match="cannot be used"):
        WatchServer(Selection((), tmp_path), int(url.rstrip("/").rpartition(":")[2]))


@pytest.mark.slow
def test_snapshot_needs_no_server_and_no_network(tmp_path):
    run = new_run(tmp_path / "runs")
    with run:
        run.log(10, {"rollout/success_rate": 0.5, "human/intervention_rate": 0.25, "terms/reach": 1.5}, elapsed=1.0)
        run.log(20, {"rollout/success_rate": 0.7, "human/intervention_rate": 0.125, "terms/reach": 2.5}, elapsed=2.0)
        keep_episode(run, 20)
        assert dispatch(["watch", "latest", "--runs", str(tmp_path / "runs"), "--once", str(tmp_path / "a" / "page.html")]) == 0
    text = (tmp_path / "a" / "page.html").read_text()
    assert "data:video/mp4;base64," in text and "human/intervention_rate" in text and "terms/reach" in text
    assert not re.search(r"(?:src|href)=\"(?!data:)", text) and "http" not in text.replace("http://www.w3.org", "")


def test_snapshot_of_nothing_says_what_it_waits_for(tmp_path):
    write_snapshot(Selection(["none"], tmp_path), "none", tmp_path / "page.html")
    assert "Waits for <b>none</b>" in (tmp_path / "page.html").read_text()


def browser_of():
    spec = importlib.util.spec_from_file_location("viewer_page_in_browser", VIEWER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_page_follows_a_training(tmp_path, monkeypatch):
    """From before the training begins until it has failed; the film that plays is left alone by what changes around it."""
    monkeypatch.setattr(films, "REST", 0.0)
    module = browser_of()
    if module.CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with served(tmp_path / "runs", "latest") as url:
        browser = module.Browser(tmp_path / "browser")
        try:
            browser.open(url)
            browser.until("document.querySelector('.waiting')?.textContent.includes('latest')")
            run = new_run(tmp_path / "runs")
            try:
                with run:
                    keep_episode(run, 5)
                    run.log(10, {"rollout/success_rate": 0.5, "train/loss": 1.0}, elapsed=1.0)
                    browser.until("document.querySelector('.state-running')?.textContent", "running")
                    browser.until("document.querySelector('video')?.readyState >= 2")
                    browser.until("document.querySelector('video').videoWidth", 32)
                    browser.value("document.querySelector('video').mark = 1; document.querySelector('details').open = true")
                    for step in (20, 30):
                        run.log(step, {"rollout/success_rate": 0.7, "train/loss": 0.5}, elapsed=step / 10)
                        browser.until(f"document.querySelector('[data-label=step]').textContent.startsWith('{step}')")
                    browser.until("document.querySelectorAll('[data-part=metrics] svg').length", 1)
                    assert browser.value("document.querySelector('video').mark") == 1
                    assert browser.value("document.querySelector('details').open")
                    keep_episode(run, 30)
                    browser.until("document.querySelector('figcaption').textContent.includes('step 30')")
                    run.log(40, {"train/loss": float("nan")}, elapsed=4.0)
                    browser.until("document.querySelector('li.trouble')?.textContent.includes('train/loss')")
                    raise RunError("The disk is gone.")
            except RunError:
                pass
            browser.until("document.querySelector('.state-failed')?.textContent", "failed")
            browser.until("document.querySelector('li.trouble').textContent", "The disk is gone.")
            assert browser.value("document.documentElement.scrollWidth <= innerWidth")
            assert browser.faults == []
        finally:
            browser.close()


TEXTS = ["", "null", "[]", "{}", "3", '"x"', "\0\0\0", "[" * 5000, '{"a": NaN}', "{" * 50, "<b>", '{"step": 1, "time": "x"}']
FILES = [
    "run.json",
    "recipe.yaml",
    "spec.json",
    "status.json",
    "messages.jsonl",
    "metrics.jsonl",
    "evaluation.json",
    "evaluations/0000000010.json",
    "newest/training.npz",
    "lock",
]
VALUES = {
    "run.json": ['{"seed": [1], "resumes": 5}', '{"resumes": [1]}', '{"resumes": [{"kind": {}}]}', '{"hacking": 3}'],
    "recipe.yaml": [
        "{name: [1], steps: x, online: 5}",
        "{steps: true, seed: {a: 1}}",
        "{steps: -1}",
        "name: 3\nsteps: 99999999999999999999",
    ],
    "status.json": ['{"state": "flying", "step": -1}', '{"state": "running", "host": 3, "lock": "x"}', '{"step": 1e30}'],
    "metrics.jsonl": [
        '{"step": 1, "time": 1e308, "x/y": 1}\n{"step": 2, "time": -1e308, "x/y": 2}\n',
        '{"step": -5, "time": 1, "x/y": 1e308, "rollout/success_rate": "a"}\n{"step": 2, "x/y": -1e308, "eval/": true}\n',
        '{"step": 1' + "0" * 400 + "}\n",
        '{"step": 1, "rollout/success_rate": [1], "": 2, "x/y": 1e999, "train/updates": null, "time/fps": 1e400}\n' * 3,
    ],
    "messages.jsonl": ['{"step": 1, "time": 1e15, "message": {"a": 1}}\n', '{"step": 1}\n'],
}


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_foreign_content_leaves_the_page(tmp_path, file):
    sound, damaged = new_run(tmp_path), new_run(tmp_path, seed=1)
    with damaged:
        damaged.log(1, {"x/y": 1.0}, elapsed=1.0)
        damaged.log(2, {"x/y": 1.0}, elapsed=2.0)
    (damaged.path / file).parent.mkdir(exist_ok=True)
    view = View(Selection([str(tmp_path)], tmp_path), SimpleNamespace(of=lambda *_: []), str)
    for text in [*TEXTS, *VALUES.get(file, ())]:
        (damaged.path / file).write_text(text)
        html = view.html()
        assert sound.path.name in html and damaged.path.name in html, text
    (damaged.path / file).unlink()
    (damaged.path / file).mkdir()
    assert sound.path.name in view.html()


@pytest.mark.slow
def test_long_log_is_drawn_thinned_and_seldom(tmp_path, monkeypatch):
    run = new_run(tmp_path)
    line = {f"train/m{number}": 0.5 for number in range(10)}
    (run.path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, "time": step, **line}) + "\n" for step in range(20_000))
    )
    view = View(Selection([str(tmp_path)], tmp_path), SimpleNamespace(of=lambda *_: []), str)
    assert len(view.html(1.0)) < 100_000
    drawn = []
    monkeypatch.setattr(view, "_draw", lambda: drawn.append(1) or "")
    monkeypatch.setattr(view, "_cost", 100.0)
    time.sleep(0.01)
    view.html(0.001)
    assert not drawn  # drawing took so long that it waits
    view.html()
    assert drawn

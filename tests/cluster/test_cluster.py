"""Workers on a cluster of this machine, and the commands on it: the same results as without it, whoever dies."""

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from robo_app.arguments.free_settings import option_words
from robo_app.cluster import cluster_training
from robo_app.cluster.folder_copies import place
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.cluster import host, preflight
from robo_rl.cluster.connection import connected
from robo_rl.cluster.task_pool import TaskPool
from robo_rl.cluster.temp_folders import locked_folder
from robo_rl.cluster.workers import Timeouts
from robo_rl.errors import BudgetReached, ClusterUnavailable, InvalidSetting, MissingExtra, WorkerFailed
from robo_rl.rewards.chat.chance import Chance
from robo_rl.rewards.chat.store import AnswerStore
from robo_rl.runs.checkpoints import checkpoint_steps

pytestmark = pytest.mark.timeout(280)
SHORT = [
    "arm-reach-sac",
    "--steps",
    "60",
    "--learner.replay.learning-starts",
    "30",
    "--evaluation.every",
    "0",
    "--checkpoint-every",
    "20",
    "--evaluation.episodes",
    "2",
    "--evaluation.videos",
    "0",
]
LONGEST_GUESS = len('{"completion_progress": 10}')
FEW = [
    "record",
    "robo/ArmReach-v0",
    "--episodes",
    "4",
    "--environment.arguments.max_steps",
    "20",
    "--environment.arguments.action_repeat",
    "2",
    "--out",
]


# without a cluster


@pytest.mark.parametrize("words", [["train", *SHORT, "--seeds", "0-1"], ["label", "data", "--reward", "oracle", "--name", "x"]])
def test_without_ray_it_says_what_to_install(monkeypatch, words):
    dispatch([*FEW, "data"])
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r'(?s)--ray needs the package .ray.(.*)pip install "robo-rl\[ray\]"'):
        dispatch([*words, "--ray", "auto"])


def test_what_is_no_address_is_refused_at_once():
    pytest.importorskip("ray")
    for where in ("here", "ray://127.0.0.1:10001", "127.0.0.1:", ":1"):
        with pytest.raises(InvalidSetting, match="auto, or HOST:PORT"), connected(where):
            pass


def test_where_nobody_listens_it_says_so_at_once():
    pytest.importorskip("ray")
    with (
        pytest.raises(ClusterUnavailable, match=r"No cluster listens at 127\.0\.0\.1:1\.(.|\n)*ray start --head"),
        connected("127.0.0.1:1"),
    ):
        pass


@pytest.mark.slow
def test_a_port_that_says_nothing_is_not_waited_for(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x" * 64)
    monkeypatch.setattr(preflight, "DRIVER_TIMEOUT", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        where = f"127.0.0.1:{mute.getsockname()[1]}"
        with (
            pytest.raises(ClusterUnavailable, match=r"rejects this machine\.(.|\n)*the same Ray and the same Python"),
            connected(where),
        ):
            pass


def test_folders_of_those_who_were_killed_are_removed(tmp_path):
    script = "from pathlib import Path; from robo_rl.cluster.temp_folders import locked_folder\n"
    script += f"import os, signal; held = locked_folder('ray-', Path({str(tmp_path)!r})); os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "ray-of-somebody").mkdir()
    first, lock = locked_folder("ray-", tmp_path)
    subprocess.run([sys.executable, "-c", script], check=False)
    assert len([*tmp_path.iterdir()]) == 3
    second, other = locked_folder("ray-", tmp_path)
    assert {*tmp_path.iterdir()} == {tmp_path / "ray-of-somebody", first, second}
    lock.close()
    other.close()


def test_locked_folder_does_not_wait_for_a_fifo(tmp_path):
    """Anybody may put one into a folder of everybody's: to open it would wait for a writer."""
    (tmp_path / "ray-trap").mkdir()
    os.mkfifo(tmp_path / "ray-trap" / "robo-rl.lock")
    script = "from pathlib import Path; from robo_rl.cluster.temp_folders import locked_folder\n"
    script += f"locked_folder('ray-', Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_locked_folder_leaves_folders_of_others_alone(tmp_path):
    (tmp_path / "ray-theirs").mkdir()
    (tmp_path / "ray-theirs/robo-rl.lock").touch()
    os.chown(tmp_path / "ray-theirs", 65534, 65534)
    locked_folder("ray-", tmp_path)[1].close()
    assert (tmp_path / "ray-theirs/robo-rl.lock").exists()


def test_locked_folder_follows_no_links(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/robo-rl.lock").touch()
    (tmp_path / "ray-link").symlink_to(tmp_path / "mine")
    (tmp_path / "ray-file").mkdir()
    (tmp_path / "ray-file/robo-rl.lock").symlink_to(tmp_path / "mine/robo-rl.lock")
    locked_folder("ray-", tmp_path)[1].close()
    assert (tmp_path / "mine/robo-rl.lock").exists() and (tmp_path / "ray-file").exists()


# workers


@pytest.mark.slow
def test_files_of_the_cluster_are_private(cluster):
    """Ray itself lets everybody write into its folder, and so into its sockets."""
    session = Path(cluster.ray._private.worker._global_node.get_session_dir_path())
    top = next(folder for folder in session.parents if folder.parent == Path("/tmp"))
    assert session.is_dir() and top != session.parent and top.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        for path in (session, session / "sockets", session / "logs"):
            looking = subprocess.run(["ls", path], check=False, user=65534, group=65534, extra_groups=[], capture_output=True)
            assert looking.returncode != 0


@pytest.mark.slow
def test_every_port_is_on_loopback_and_asks_for_the_token(cluster):
    assert cluster.address.startswith("127.0.0.1:") and cluster.cores == 2
    assert os.environ["RAY_AUTH_MODE"] == "token" and len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert {local for local, inode in listening() if inode in sockets_of(descendants())} <= {"0100007F", "0" * 24 + "0100007F"}


def listening() -> list[tuple[str, str]]:
    """Returns address and inode of each port that is listened on."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    found = [(line[1].split(":")[0], line[9]) for line in lines if line[3] == "0A"]
    return [(re.sub("^0{16}FFFF0000", "0" * 24, address), inode) for address, inode in found]


def descendants() -> set[int]:
    """Returns this process and all that it began."""
    parents = {
        int(path.parent.name): int(path.read_text().rpartition(")")[2].split()[1]) for path in Path("/proc").glob("[0-9]*/stat")
    }
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def sockets_of(pids: set[int]) -> set[str]:
    links = [os.readlink(link) for pid in pids for link in Path(f"/proc/{pid}/fd").glob("*") if link.is_symlink()]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


@pytest.mark.slow
def test_results_match_tasks_and_lost_tasks_are_repeated(cluster, tmp_path):
    said = []
    timeouts = Timeouts(answer=8.0)
    with closing(TaskPool(cluster, "asked:Asked", [b">"] * 2, timeouts=timeouts, say=said.append)) as pool:
        words = ["a", f"die {tmp_path / 'died'}", "b", f"hang {tmp_path / 'hung'}", "c"]
        found = dict(pool.results(word.encode() for word in words))
        assert found == {0: b">a", 1: b">die", 2: b">b", 3: b">hang", 4: b">c"}
        assert sorted("died" in line for line in said) == [False, True] and all("is replaced" in line for line in said)
        while len(pool.idle) < 2:  # the one that takes the place of the hung one begins
            reply = pool.next(0.05)
            assert reply is None or reply.content == b"made"
        drawn = []
        tasks = (drawn.append(word) or word for word in [f"slow {tmp_path / 'slow'}".encode(), b"b", b"c", b"d", b"e"])
        results = pool.results(tasks, ahead=3)
        assert next(results) == (0, b">slow") and len(drawn) == 3, "no more is begun than was allowed"
        assert [number for number, _ in results] == [1, 2, 3, 4]
        with pytest.raises(BudgetReached, match=r"The budget is spent\.\n  got:     3"):
            list(pool.results([b"refuse"]))
        with pytest.raises(WorkerFailed, match=r"(?s)worker \d failed.*ZeroDivisionError: of nothing"):
            list(pool.results([b"fail"]))


@pytest.mark.slow
def test_what_no_node_can_hold_is_refused(cluster):
    with pytest.raises(InvalidSetting, match="No node has that many cores"):
        TaskPool(cluster, "asked:Asked", [b""], cores=3.0)


@pytest.mark.slow
def test_another_ray_or_python_is_refused_at_the_door(cluster):
    preflight.require_open(cluster.address)
    usage = importlib.import_module("ray._common.usage.usage_lib")
    space = importlib.import_module("ray._private.ray_constants").KV_NAMESPACE_CLUSTER
    client = importlib.import_module("ray._private.worker").global_worker.gcs_client
    known = usage.get_cluster_metadata(client)

    def put(told):
        client.internal_kv_put(usage.usage_constant.CLUSTER_METADATA_KEY, json.dumps(told).encode(), True, space)

    for name, other in (("ray_version", "2.59.0"), ("python_version", "3.12.1")):
        try:
            put({**known, name: other})
            with pytest.raises(
                ClusterUnavailable, match=rf"(?s)rejects this machine.*Version mismatch.*{other}.*the same Ray and"
            ):
                preflight.require_open(cluster.address)
        finally:
            put(known)


@pytest.mark.slow
def test_another_robo_rl_ends_the_command_with_one_error(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(host, "version", lambda _: "0.0.1")
    with pytest.raises(ClusterUnavailable, match=r"A node has another robo-rl\.\n  got: .*\n  allowed: 0\.0\.1"):
        dispatch(["train", *SHORT, "--seeds", "0-2", "--out", str(tmp_path), "--ray", "auto"])


@pytest.mark.slow
def test_impossible_need_is_an_error_and_extra_workers_queue(cluster):
    timeouts = Timeouts(losses=1)
    fatal = pytest.raises(WorkerFailed, match=r"Worker 0 was lost 1 times in a row")
    with closing(TaskPool(cluster, "asked:Fatal", [b""], timeouts=timeouts)) as pool, fatal:
        list(pool.results([b"a"]))
    with closing(TaskPool(cluster, "asked:Asked", [b""] * 3, timeouts=timeouts)) as pool:
        assert len([*pool.results([b"a", b"b", b"c", b"d"])]) == 4 and len(pool.idle) < 3


# commands


def told(run: Path) -> list:
    """Returns what a run found, without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = [{name: value for name, value in line.items() if not name.startswith("time")} for line in lines]
    evaluation = json.loads((run / "evaluation.json").read_text())
    return [lines, evaluation["returns"], evaluation["lengths"]]


@pytest.mark.slow
def test_seeds_are_trained_as_they_are_here(cluster, tmp_path, capsys):
    order = ["train", *SHORT, "--out"]
    assert dispatch([*order, str(tmp_path / "there"), "--seeds", "0,3", "--ray", "auto"]) == 0
    folder = tmp_path / "there" / "arm-reach-sac-seeds"
    assert "2 training seeds" in capsys.readouterr().out and (folder / "report.html").exists()
    assert "run " in (folder / "logs" / "seed-3.log").read_text()
    assert dispatch([*order, str(tmp_path / "here"), "--seed", "3"]) == 0
    (here,), (there,) = (tmp_path / "here").iterdir(), folder.glob("runs/*-3")
    assert told(here) == told(there)
    for name in ("learner.safetensors", "replay.safetensors"):
        one, other = ((run / "checkpoints" / "0000000060" / name) for run in (here, there))
        assert one.exists() == other.exists() and (not one.exists() or one.read_bytes() == other.read_bytes()), name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_trains_what_it_trains_here(cluster):
    pytest.importorskip("optuna")
    Path("space.yaml").write_text("learner.lr: {low: 1.0e-4, high: 1.0e-2, log: true}\n")
    order = ["sweep", *SHORT, "--space", "space.yaml", "--trials", "3", "--seeds", "0"]
    assert dispatch([*order, "--ray", "auto", "--out", "there"]) == 0
    assert dispatch([*order, "--out", "here"]) == 0
    here, there = (
        {trial["number"]: [trial["values"], trial["state"]] for trial in json.loads(path.read_text())["trials"]}
        for path in (Path(f"{where}/arm-reach-sac-sweep/sweep.json") for where in ("here", "there"))
    )
    assert here == there and len(there) == 3
    returns = {where: sorted(map(returns_of, Path(where).glob("**/evaluation.json"))) for where in ("here", "there")}
    assert returns["here"] == returns["there"] and len({*map(tuple, returns["there"])}) == 3


def returns_of(path: Path) -> list[float]:
    return json.loads(path.read_text())["returns"]


@pytest.mark.slow
def test_ctrl_c_while_news_is_stored_is_put_off_until_it_is(cluster, tmp_path, monkeypatch):
    def interrupted(*arguments):
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGINT)
        place(*arguments)

    monkeypatch.setattr(cluster_training, "place", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dispatch(["train", *SHORT, "--seeds", "0", "--out", str(tmp_path), "--ray", "auto"])
    (run,) = tmp_path.glob("arm-reach-sac-seeds/runs/*")
    assert checkpoint_steps(run / "checkpoints")[-1] >= 20
    log = (tmp_path / "arm-reach-sac-seeds/logs/seed-0.log").read_text()
    assert "interrupted at step" in log or "trained in" in log


@pytest.mark.slow
def test_labels_are_those_that_are_made_here(cluster, capsys):
    dispatch([*FEW, "data"])
    words = ["label", "data", "--reward", "noisy-oracle", "--cache"]
    assert dispatch([*words, "none", "--name", "here"]) == 0
    assert dispatch([*words, "kept", "--name", "there", "--ray", "auto"]) == 0
    assert dispatch([*words, "kept", "--name", "again", "--replay"]) == 0, "one cache has what came back"
    dataset = Dataset(Path("data"))
    assert len({LabelSet(dataset, name).digest(dataset.entries()) for name in ("here", "there", "again")}) == 1


@pytest.mark.slow
def test_a_budget_holds_for_all_workers_together(cluster):
    arguments = [
        "--environment.arguments.max_steps",
        "20",
        "--environment.arguments.action_repeat",
        "2",
        "--environment.arguments.cameras",
        "[front]",
        "--environment.arguments.image_size",
        "16",
    ]
    dispatch(["record", "robo/ArmReach-v0", "--episodes", "4", *arguments, "--out", "seen"])
    terms = {"cache": "answers", "most_tokens": 200}
    settings = option_words("reward.settings", {"judge": "chance", "judge_settings": {"terms": terms}, "every": 5})
    order = ["label", "seen", "--reward", "judge-progress", *settings, "--cache", "none", "--name", "mine"]
    with pytest.raises(BudgetReached, match="The budget is spent"):
        dispatch([*order, "--ray", "auto"])
    with AnswerStore("answers").opened() as kept:
        ((_, tokens),) = kept.spent(":".join(Chance().identity)).values()
    assert 200 <= tokens < 200 + LONGEST_GUESS
    assert len(LabelSet(Dataset(Path("seen")), "mine").labelled) < 4


@pytest.mark.slow
def test_episodes_are_those_that_are_played_here(cluster, capsys):
    words = [
        "record",
        "robo/ArmReach-v0",
        "--episodes",
        "5",
        "--noise",
        "0.2",
        "--environment.arguments.max_steps",
        "20",
        "--environment.arguments.action_repeat",
        "2",
    ]
    for name, more in (("here", []), ("there", ["--ray", "auto", "--jobs", "2"])):
        assert dispatch([*words, "--out", name, *more]) == 0
    here, there = (Dataset(Path(name)) for name in ("here", "there"))
    assert [entry.seed for entry in there.entries()] == [0, 1, 2, 3, 4]
    for one, other in zip(here, there, strict=True):
        assert one.observations.keys() == other.observations.keys() and one.success == other.success
        for name, values in one.observations.items():
            assert values.tobytes() == other.observations[name].tobytes()
        assert one.actions.tobytes() == other.actions.tobytes() and one.rewards.tobytes() == other.rewards.tobytes()
        assert one.metadata == other.metadata

"""What a Trainer of Hugging Face reports by itself: a script that posts as its callback does, hostile requests over raw
sockets, what a rank finds in its environment, and the real Trainer."""
import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap

import pytest

from marks import full_only
from support import ROOT, processes_of, until
from test_s24_commands import CLIENT, script, spec

# As KubeflowCallback of transformers does it.
POSTER = '''
    import urllib.error, urllib.request
    def post(percent, metrics, url=None):
        status = {"lastUpdatedTime": "2026-01-01T00:00:00+00:00", "progressPercentage": percent, "estimatedRemainingSeconds": 3,
                  "metrics": [{"name": k, "value": str(v)} for k, v in metrics.items()]}
        token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"], encoding="utf-8").read().strip()
        request = urllib.request.Request(url or os.environ["KUBEFLOW_TRAINER_SERVER_URL"],
                                         data=json.dumps({"trainerStatus": status}).encode(), method="POST",
                                         headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200
    def step(at, total=40, **metrics):
        post(at * 100 // total, {**metrics, "current_step": at, "total_steps": total, "current_epoch": round(at / 16, 2)})
    def wait(path):
        while not os.path.exists(path): time.sleep(0.01)
    def leave(path):
        open(path + ".part", "w").write(json.dumps(dict(os.environ)))
        os.rename(path + ".part", path)
'''


def poster(tmp_path, text, env=None, **more):
    path = script(tmp_path, textwrap.dedent(POSTER) + textwrap.dedent(text))
    return spec(sys.executable, path, **({"env": env} if env else {}), **more)


def of(daemon, job, name):
    return [(p.step, p.value) for p in daemon.points(job, name)] if name in daemon.job(job).metrics else []


def left(path):
    until(f"{path} is there", path.exists)
    return json.loads(path.read_text())


def release(tmp_path, *names):
    for name in names:
        (tmp_path / name).write_text("")


# ---- what becomes of reports --------------------------------------------------------------------
def test_reports_are_progress_and_metrics(daemon, tmp_path):
    job = daemon.submit(poster(tmp_path, f"""
        post(0, {{"total_steps": 40}})
        step(1)
        step(11, loss=2.5, learning_rate=1e-05, grad_norm=float("nan"), epoch=0.62)
        step(15, loss=2.5, learning_rate=1e-05, grad_norm=float("nan"), epoch=0.62)
        wait("{tmp_path}/more")
        step(21, loss=2.25, learning_rate=1e-05, grad_norm=float("inf"), epoch=1.25)
        wait("{tmp_path}/end")
        post(100, {{"loss": 1.5, "learning_rate": 1e-05, "epoch": 2.5, "train_loss": 2.0}})
        """))
    until("the first reports are shown", lambda: daemon.job(job).global_step == 15 and "loss" in daemon.job(job).metrics)
    shown = daemon.job(job)
    assert (shown.total_steps, shown.progress.loss, shown.progress.phase) == (40, 2.5, "training")
    assert shown.metrics["learning_rate"] == 1e-05
    assert re.search(r"^step +15 of 40$", daemon.ctl("describe", job, check=0).stdout, re.M)
    release(tmp_path, "more")
    until("the next one is", lambda: daemon.job(job).global_step == 21 and daemon.job(job).metrics["loss"] == 2.25)
    assert daemon.job(job).epoch == 1 and daemon.job(job).progress.eta_s > 0
    assert re.search(r"^progress .*, ETA \d", daemon.ctl("describe", job, check=0).stdout, re.M)
    release(tmp_path, "end")
    done = daemon.finish(job)
    assert (done.global_step, done.total_steps, list(done.notes)) == (40, 40, [])
    # Of the step that had ended when they were logged; what did not change is no point.
    assert of(daemon, job, "loss") == [(10, 2.5), (20, 2.25), (40, 1.5)]
    assert of(daemon, job, "learning_rate") == [(10, 1e-05)]
    assert [step for step, _ in of(daemon, job, "grad_norm")] == [10, 20]
    assert of(daemon, job, "train_loss") == [(40, 2.0)]
    assert not {"current_step", "total_steps", "current_epoch"} & set(done.metrics)


def test_a_report_is_shown_within_a_second(daemon, tmp_path):
    job = daemon.submit(poster(tmp_path, f"""
        post(0, {{"total_steps": 40}})
        leave("{tmp_path}/up")
        wait("{tmp_path}/go")
        step(11, loss=2.5)
        leave("{tmp_path}/told")
        wait("{tmp_path}/end")
        """))
    left(tmp_path / "up")
    release(tmp_path, "go")
    left(tmp_path / "told")
    until("it is shown", lambda: of(daemon, job, "loss") == [(10, 2.5)], deadline_s=1)
    release(tmp_path, "end")
    daemon.finish(job)


def test_the_child_is_there_for_those_who_report_alone(daemon, tmp_path):
    job = daemon.submit(poster(tmp_path, f"""
        leave("{tmp_path}/up")
        wait("{tmp_path}/go")
        step(11, loss=2.5)
        wait("{tmp_path}/end")
        """))
    children = lambda: [pid for pid, line in processes_of(daemon.state_dir).items() if "traind-worker reports" in line]
    left(tmp_path / "up")
    assert not children()
    release(tmp_path, "go")
    until("it is shown", lambda: of(daemon, job, "loss"))
    child, = children()
    os.kill(child, signal.SIGKILL)
    until("another takes its place", lambda: set(children()) - {child})
    release(tmp_path, "end")
    notes = list(daemon.finish(job).notes)
    assert len(notes) == 1 and "ended by signal 9" in notes[0], notes


# ---- what a rank finds --------------------------------------------------------------------------
def test_each_rank_has_an_address_and_a_token_of_its_own(daemon, tmp_path):
    job = daemon.submit(poster(tmp_path, f"""
        leave("{tmp_path}/" + os.environ["RANK"])
        wait("{tmp_path}/end")
        """, trainer={"devices": 2}))
    ranks = [left(tmp_path / str(rank)) for rank in (0, 1)]
    tokens = [pathlib.Path(env["KUBEFLOW_TRAINER_SERVER_TOKEN"]) for env in ranks]
    assert [stat.S_IMODE(path.stat().st_mode) for path in tokens] == [0o600] * 2
    assert len({path.read_text() for path in tokens}) == 2 and all(re.fullmatch("[0-9a-f]{64}", p.read_text()) for p in tokens)
    urls = [re.fullmatch(r"http://127\.0\.0\.1:(\d+)/(\d)", env["KUBEFLOW_TRAINER_SERVER_URL"]) for env in ranks]
    assert [url[2] for url in urls] == ["0", "1"] and urls[0][1] == urls[1][1]
    assert all(env["NO_PROXY"] == env["no_proxy"] == "127.0.0.1" for env in ranks)
    listening = pathlib.Path("/proc/net/tcp").read_text()
    assert f"0100007F:{int(urls[0][1]):04X} 00000000:0000 0A" in listening, "on loopback, and nowhere else"
    release(tmp_path, "end")
    assert not daemon.finish(job).notes


@pytest.mark.parametrize("given, expected", [
    ({"NO_PROXY": "a.org"}, ("a.org,127.0.0.1", "a.org,127.0.0.1")),
    ({"no_proxy": "b.org", "NO_PROXY": "a.org, 127.0.0.1"}, ("a.org, 127.0.0.1", "b.org,127.0.0.1")),
    ({"no_proxy": "*"}, ("*", "*")),
    ({"no_proxy": "127.0.0.10"}, ("127.0.0.10,127.0.0.1", "127.0.0.10,127.0.0.1")),
])
def test_proxies_are_spared_after_what_is_there(daemon, tmp_path, given, expected):
    job = daemon.submit(poster(tmp_path, f'leave("{tmp_path}/env")', env={**given, "http_proxy": "http://127.0.0.1:9/"}))
    daemon.finish(job)
    env = left(tmp_path / "env")
    assert (env["NO_PROXY"], env["no_proxy"]) == expected


@pytest.mark.parametrize("env, more", [
    ({"DISABLE_KUBEFLOW_INTEGRATION": "True"}, {}),
    ({"KUBEFLOW_TRAINER_SERVER_TOKEN": "/mine"}, {}),
    ({"A": "b"}, {"metrics_from": {"transformers": "never"}}),
])
def test_nothing_is_set_where_it_is_not_wanted(daemon, tmp_path, env, more):
    job = daemon.submit(poster(tmp_path, f'leave("{tmp_path}/env")', env=env, **more))
    assert not daemon.finish(job).notes
    found = left(tmp_path / "env")
    assert "KUBEFLOW_TRAINER_SERVER_URL" not in found and "NO_PROXY" not in found
    assert found.get("KUBEFLOW_TRAINER_SERVER_TOKEN") == env.get("KUBEFLOW_TRAINER_SERVER_TOKEN")


@pytest.mark.parametrize("has_transformers", [True, False])
def test_older_python_gets_nothing_and_a_note_where_there_is_a_trainer(daemon, tmp_path, has_transformers):
    old = tmp_path / "venv/bin/python3.10"
    old.parent.mkdir(parents=True)
    old.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    old.chmod(0o700)
    if has_transformers:
        (tmp_path / "venv/lib/python3.10/site-packages/transformers").mkdir(parents=True)
    path = script(tmp_path, textwrap.dedent(POSTER) + f'leave("{tmp_path}/env")')
    job = daemon.submit(spec(old, path))
    notes = list(daemon.finish(job).notes)
    assert "KUBEFLOW_TRAINER_SERVER_URL" not in left(tmp_path / "env")
    if has_transformers:
        assert len(notes) == 1 and "by itself under Python 3.11 or newer" in notes[0] and str(old) in notes[0], notes
    else:
        assert not notes


def test_a_program_that_is_not_known_to_run_python_gets_it_when_asked(daemon, tmp_path):
    own = tmp_path / "program"
    own.symlink_to("/usr/bin/env")
    for word, is_set in (("auto", False), ("always", True)):
        job = daemon.submit(spec(own, metrics_from={"transformers": word}))
        daemon.finish(job)
        assert ("KUBEFLOW_TRAINER_SERVER_URL=" in daemon.output(job, out_only=True)) == is_set


def test_script_that_reports_by_our_calls_does_so_alone(daemon, tmp_path):
    job = daemon.submit(poster(tmp_path, """
        import traind
        assert os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
        traind.init()
        assert os.environ["KUBEFLOW_TRAINER_SERVER_URL"] # a script that asks for stops alone reports as before
        traind.log({"loss": 1.0}, step=1)
        assert "KUBEFLOW_TRAINER_SERVER_URL" not in os.environ # which the callback looks at each time
        """, env={"PYTHONPATH": str(CLIENT)}))
    assert not daemon.finish(job).notes
    assert of(daemon, job, "loss") == [(1, 1.0)]


# ---- what is hostile ----------------------------------------------------------------------------
def request(url, token, body, length=None):
    port, path = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/.*)", url).groups()
    head = f"POST {path} HTTP/1.1\r\nContent-Length: {len(body) if length is None else length}\r\n"
    head += f"Authorization: Bearer {token}\r\n" if token else ""
    return int(port), (head + "\r\n").encode() + body


def answer(port, data):
    """Status of what came back; 0: the connection ended without."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(data)
        said = b""
        while more := s.recv(4096):
            said += more
    return int(said.split()[1]) if said else 0


def metrics(*pairs):
    return json.dumps({"trainerStatus": {"metrics": [{"name": k, "value": v} for k, v in pairs]}}).encode()


@pytest.fixture
def victims(daemon, tmp_path):
    """A job of two ranks that wait: its id, and (url, token) of each."""
    job = daemon.submit(poster(tmp_path, f"""
        leave("{tmp_path}/" + os.environ["RANK"])
        wait("{tmp_path}/end")
        """, trainer={"devices": 2}))
    ranks = [left(tmp_path / str(rank)) for rank in (0, 1)]
    made = [(env["KUBEFLOW_TRAINER_SERVER_URL"], pathlib.Path(env["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text()) for env in ranks]
    return job, made


def test_strangers_are_refused_and_noted_once(daemon, tmp_path, victims):
    job, ((url, token), (_, other)) = victims
    good = metrics(("loss", "1.5"), ("current_step", "3"))
    for bad in (None, "", "guess", other, token[:-1], token + "0", token.upper() if token.upper() != token else "x"):
        assert answer(*request(url, bad, good)) == 401, bad
    assert answer(*request(url.rpartition("/")[0] + "/7", token, good)) == 404
    assert answer(*request(url, other, b"x" * 500_000)) == 401
    for text in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"a" * 10_000):
        assert answer(request(url, token, b"")[0], text) in (400, 405, 431)
    assert not of(daemon, job, "loss")
    assert answer(*request(url, token, good)) == 200
    until("what has the token is taken", lambda: of(daemon, job, "loss") == [(2, 1.5)])
    release(tmp_path, "end")
    notes = list(daemon.finish(job).notes)
    assert len(notes) == 1 and "without the token of its rank" in notes[0], notes


def test_bad_reports_are_refused_and_noted_once_each(daemon, tmp_path, victims):
    job, ((url, token), _) = victims
    for _ in range(3):
        for body in (b"", b"{", b"[]", b"not json", metrics(("a", 7))[:-1], b'{"trainerStatus": []}'):
            assert answer(*request(url, token, body)) == 400, body
        assert answer(*request(url, token, b"x" * (65536 + 1))) == 413
        assert answer(*request(url, token, b"", length=10 ** 12)) == 413
        assert answer(*request(url, token, metrics(("loss", "heavy"), ("good", "1")))) == 200
        assert answer(*request(url, token, metrics(("n" * 64, "1")))) == 200
    assert answer(*request(url, token, metrics(*((f"m{i}", "1") for i in range(1500))))) == 200
    release(tmp_path, "end")
    notes = list(daemon.finish(job).notes)
    for words in ("as others like it: ", "over 65536 bytes", "'loss' is 'heavy', which is no number", "1 to 63 bytes of UTF-8"):
        assert sum(words in note for note in notes) == 1, notes
    assert len(notes) == 4
    assert of(daemon, job, "good") == [(0, 1.0)] and len(of(daemon, job, "m1")) == 1


def test_ten_thousand_names_are_bounded_counted_and_noted_once(daemon, tmp_path, victims):
    job, ((url, token), _) = victims
    for part in range(10):
        body = metrics(*((f"m{part * 1000 + i}", "1") for i in range(1000)))
        assert len(body) < 65536 and answer(*request(url, token, body)) == 200
    release(tmp_path, "end")
    done = daemon.finish(job)
    assert sum("past the bound of names" in note for note in done.notes) == 1 and len(done.notes) == 1, done.notes
    said = json.loads(daemon.ctl("metrics", job, "m0", "-o", "json", check=0).stdout)
    assert int(said["dropped_points"]) == 10000 - 4096


@full_only  # 5 s
def test_slow_bodies_are_cut_and_hold_nobody_up(daemon, tmp_path, victims):
    job, ((url, token), _) = victims
    port, start = request(url, token, b"{", length=1000)
    slow = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(200)]
    for s in slow[100:]:
        s.sendall(start)
    assert answer(*request(url, token, metrics(("loss", "1"), ("current_step", "1")))) == 200
    for s in slow:
        try:
            said = s.recv(4096)
        except ConnectionResetError:
            said = b""
        assert said == b"" or said.split()[1] == b"408", said
        s.close()
    assert answer(*request(url, token, metrics(("loss", "2"), ("current_step", "2")))) == 200
    release(tmp_path, "end")
    notes = list(daemon.finish(job).notes)
    assert sum("was not whole after 5 s" in note for note in notes) == len(notes) == 1, notes
    assert of(daemon, job, "loss") == [(0, 1.0), (1, 2.0)]


# ---- the real one -------------------------------------------------------------------------------
@full_only
def test_unmodified_trainer_reports_by_itself(daemon, tmp_path, torch_python):
    """A tiny model from its config, on CPU, with transformers as it comes: nothing of traind's in the script."""
    probe = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, ('transformers', 'accelerate'))))"
    if subprocess.run([torch_python, "-c", probe], timeout=60).returncode:
        pytest.skip(f"no Python package transformers, or accelerate, which its Trainer needs ({torch_python}; `make rivals`)")
    steps, pause = 30, 0.4
    job = daemon.submit(spec(torch_python, ROOT / "tests/clients/hf_trainer.py", steps, pause, tmp_path / "out",
                             env={"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}))
    daemon.wait_step(job, 1, deadline_s=180)
    until("its loss and what is left are shown",
          lambda: daemon.job(job).metrics.get("loss", 0) > 0 and daemon.job(job).progress.eta_s > 0)
    shown = daemon.job(job)
    assert (shown.total_steps, shown.State.Name(shown.state)) == (steps, "RUNNING") and shown.global_step < steps
    assert 0 < shown.progress.eta_s < 120 and shown.progress.loss > 0
    described = daemon.ctl("describe", job, check=0).stdout
    assert re.search(rf"^step +\d+ of {steps}$", described, re.M) and re.search(r"^progress .*, ETA 0:\d\d", described, re.M)
    assert "loss = " in described and "learning_rate = " in described
    done = daemon.finish(job, deadline_s=120)
    assert (done.global_step, list(done.notes)) == (steps, []), done.notes
    said = daemon.output(job, out_only=True)
    losses = dict(json.loads(re.search(r"^losses (.*)$", said, re.M)[1].replace("(", "[").replace(")", "]")))
    points = of(daemon, job, "loss")
    assert len(points) >= 2 and points[-1] == (steps, losses[steps])
    for step, value in points:  # each the newest that was logged until then
        assert value == losses[max(s for s in losses if s <= step)], (points, losses)
    assert of(daemon, job, "train_loss") == [(steps, float(re.search(r"^train_loss (.*)$", said, re.M)[1]))]
    assert "loss" in daemon.ctl("metrics", job, "loss", check=0).stdout

"""kind: command, through a real daemon: any program is a job. What it gets, how its end is judged, what is refused."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap

import grpc
import pytest

from support import BIN, ROOT, alive, until

CLIENT = ROOT / "clients/python"


def spec(*argv, **more):
    base = {"kind": "command", "command": [str(a) for a in argv], "restart": {"max": 2, "backoff": [0]}}
    return json.dumps({**base, **more})


def script(tmp_path, text, name="script.py"):
    path = tmp_path / name
    path.write_text("import os, sys, json, signal, time\n" + textwrap.dedent(text))
    return path


def python(tmp_path, text, **more):
    """A job of a script that has the client at hand."""
    return spec(sys.executable, script(tmp_path, text), env={"PYTHONPATH": str(CLIENT)}, **more)


def text_of(daemon, job, stream):
    return b"".join(p.read_bytes() for p in sorted(daemon.state_dir.glob(f"attempts/{job}/a*/{stream}"))).decode()


def failed(daemon, job):
    return daemon.wait_state(job, "FAILED").failure


# ---- what a rank is given -----------------------------------------------------------------------
# The YAML of a person: what is written is what runs
def test_arguments_are_the_text_that_is_written(daemon):
    job = daemon.submit("kind: command\nname: 007\nenv: {A: 0x1F, B: ~, C: 1.50}\ncommand: [sh, -c, 'printf \"%s \" $A $B $C \"$@\"', "
                        "sh, 007, 0x1F, 0o17, +5, 00012, true, null, 1e3]\n", "env.D=010")
    daemon.finish(job)
    assert daemon.output(job, out_only=True) == "0x1F ~ 1.50 007 0x1F 0o17 +5 00012 true null 1e3 " and daemon.job(job).name == "007"


# What json.dumps makes of any text, with and without escapes
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_is_json(daemon, ascii_only):
    said = "\U0001f600 \x85 \u2028 a: b #"
    text = json.dumps({"kind": "command", "command": ["printf", "%s", said, 12]}, ensure_ascii=ascii_only)
    job = daemon.submit(text.replace('"command":', '"command"\n:'))
    daemon.finish(job)
    assert daemon.output(job, out_only=True) == said + "12"


# Contract 17: ranks of a command have the names of torchrun
def test_ranks_have_the_environment_of_torchrun(daemon, tmp_path):
    out = tmp_path / "env"
    job = daemon.submit(python(tmp_path, f"""
        kept = dict(os.environ, cwd=os.getcwd(), args=" ".join(sys.argv[1:]))
        open("{out}." + os.environ["RANK"], "w").write(json.dumps(kept))
        """, trainer={"devices": 2}))
    done = daemon.finish(job)
    assert (done.n_ranks, done.attempt, done.restarts) == (2, 1, 0)
    ports = set()
    for rank in (0, 1):
        env = json.loads(pathlib.Path(f"{out}.{rank}").read_text())
        wanted = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2,
                  "ROLE_WORLD_SIZE": 2, "GROUP_RANK": 0, "NODE_RANK": 0, "GROUP_WORLD_SIZE": 1,
                  "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 2,
                  "TORCHELASTIC_RUN_ID": job, "TORCHELASTIC_USE_AGENT_STORE": "False", "OMP_NUM_THREADS": 1,
                  "TRAIND_JOB": job, "TRAIND_ATTEMPT": 1, "PYTHONPATH": str(CLIENT),
                  "cwd": f"{daemon.state_dir}/checkpoints/{job}"}
        assert {k: env.get(k) for k in wanted} == {k: str(v) for k, v in wanted.items()}
        assert "TRAIND_RESUME_FROM" not in env and not [k for k in env if k.startswith("XDG_")]
        ports.add(int(env["MASTER_PORT"]))
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert len(ports) == 1 and not low <= ports.pop() <= high


def test_logs_workdir_and_words_reach_the_program(daemon, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    job = daemon.submit(spec("sh", "-c", 'echo "out $0 $1 $SAID" && echo bad >&2; pwd', "a b", 3, workdir=str(work),
                             env={"SAID": "it's"}))
    daemon.finish(job)
    assert sorted(daemon.output(job).splitlines()) == sorted(["out a b 3 it's", "bad", str(work)])


# ---- how an end is judged -----------------------------------------------------------------------
@pytest.mark.parametrize("argv, cls, words", [
    (["sh", "-c", "exit 1"], "user_code", "exit code 1"),
    (["sh", "-c", "exit 2"], "user_code", "exit code 2"),
    (["sh", "-c", "kill -SEGV $$"], "user_code", "signal 11 (SEGV)"),
    (["sh", "-c", "exit 139"], "user_code", "signal 11 (SEGV)"),
    (["no-such-program-here"], "bad_spec", "'no-such-program-here' cannot be run on this node: No such file"),
    (["/etc/passwd"], "bad_spec", "'/etc/passwd' cannot be run on this node: Permission denied"),
])
def test_end_is_judged_once_and_for_all(daemon, argv, cls, words):
    job = daemon.submit(spec(*argv))
    found = failed(daemon, job)
    assert getattr(found, "class") == cls and words in found.message, found
    assert daemon.job(job).attempt == 1


@pytest.mark.parametrize("argv, cls, words", [
    (["sh", "-c", "exit 75"], "internal", "asks for another attempt"),
    (["sh", "-c", "kill -KILL $$"], "killed", "signal 9 (KILL), not sent by traind"),
    (["sh", "-c", "exit 137"], "killed", "signal 9 (KILL), not sent by traind"),
])
def test_end_is_tried_again_within_the_budget(daemon, argv, cls, words):
    job = daemon.submit(spec(*argv))
    found = failed(daemon, job)
    assert words in found.message and getattr(found, "class") == cls
    assert (daemon.job(job).attempt, daemon.job(job).restarts) == (3, 2)


def test_workdir_that_is_not_there_is_the_specs_mistake(daemon, tmp_path):
    job = daemon.submit(spec("true", workdir=str(tmp_path / "nowhere")))
    found = failed(daemon, job)
    assert getattr(found, "class") == "bad_spec" and "nowhere' is not a directory" in found.message


# ---- limits, logs, children ---------------------------------------------------------------------
def test_children_are_reaped_also_those_in_sessions_of_their_own(daemon, tmp_path):
    pids = tmp_path / "pids"
    job = daemon.submit(python(tmp_path, f"""
        import subprocess
        own = subprocess.Popen(["sleep", "1000"])
        session = subprocess.Popen(["setsid", "sh", "-c", "sleep 1000 & echo $! >> {pids}; sleep 1000"])
        ignores = subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM HUP; while :; do sleep 1000; done"])
        while not (os.path.exists("{pids}") and open("{pids}").read().strip()): time.sleep(0.01)
        open("{pids}", "a").write(f"{{own.pid}} {{session.pid}} {{ignores.pid}}")
        """))
    daemon.finish(job)
    found = [int(p) for p in pids.read_text().split()]
    assert len(found) == 4 and not [p for p in found if alive(p)]


def test_log_is_cut_and_counted(daemon):
    job = daemon.submit(spec("sh", "-c", "head -c 1073741824 /dev/zero | tr '\\0' x"))
    done = daemon.finish(job, deadline_s=120)
    said = list(daemon.logs(job, follow=True))
    kept = b"".join(m.data for m in said)
    assert 55 << 20 < kept.count(b"x") < len(kept) <= 56 << 20 and done.attempt == 1
    assert said[-1].dropped_bytes == (1 << 30) - kept.count(b"x")


def test_traceback_was_dropped_where_stdout_had_filled_the_log(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        for i in range(1 << 16): print("x" * 1023)
        raise RuntimeError("why it failed")
        """, restart={"max": 0}))
    assert "see its stderr" in failed(daemon, job).message
    assert daemon.output(job, err_only=True).endswith("RuntimeError: why it failed\n")
    assert daemon.output(job, out_only=True).endswith("x\n")


def test_progress_bar_is_lines_and_takes_little_of_the_log(daemon, tmp_path):
    """As tqdm writes it: a carriage return, and the line again."""
    job = daemon.submit(python(tmp_path, """
        for i in range(200001): sys.stderr.write(f"\\r{i // 2000:3d}%|{'#' * (i // 4000):50}| {i}/200000 [00:00<?, it/s]")
        sys.stderr.write("\\n")
        sys.stdout.write("no newline at the end")
        """))
    daemon.finish(job)
    bar = daemon.output(job, err_only=True).splitlines()
    assert 2 <= len(bar) < 20 and bar[0].startswith("  0%|") and bar[-1].endswith("| 200000/200000 [00:00<?, it/s]"), bar
    assert daemon.output(job, out_only=True) == "no newline at the end"


def test_limits_hold(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import resource
        for name in ("NOFILE", "CORE", "DATA"):
            print(name, *resource.getrlimit(getattr(resource, "RLIMIT_" + name)))
        print("NPROC", resource.getrlimit(resource.RLIMIT_NPROC)[1])
        try:
            big = bytearray(400 << 20)
        except MemoryError:
            print("no memory")
        """, resources={"open_files": 64, "memory_bytes": 256 << 20, "processes": 500}))
    daemon.finish(job)
    lines = dict(line.split(" ", 1) for line in daemon.output(job).splitlines())
    assert lines["NOFILE"] == "64 64" and lines["CORE"] == "0 0" and lines["NPROC"] == "500"
    own = int(lines["DATA"].split()[0])
    assert 250 << 20 < own <= 256 << 20 and lines["no"] == "memory"


# ---- stopping -----------------------------------------------------------------------------------
def test_cancel_reaches_the_whole_group_and_then_kills_what_ignores_it(cluster, tmp_path):
    daemon = cluster.start("--slots", "2")
    said = tmp_path / "said"
    polite = daemon.submit(python(tmp_path, f"""
        def end(number, frame):
            open("{said}", "w").write(str(number))
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        print("armed", flush=True)
        while True: signal.pause()
        """))
    until("it is armed", lambda: "armed" in text_of(daemon, polite, "out.0.log"))
    daemon.steer("Cancel", polite)
    daemon.wait_state(polite, "CANCELLED")
    assert said.read_text() == str(int(signal.SIGTERM))


def test_what_ignores_sigterm_is_killed_after_the_grace(cluster, tmp_path):
    daemon = cluster.start("--slots", "2", "--stop-grace-ms", "300")
    pid = tmp_path / "pid"
    job = daemon.submit(python(tmp_path, f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("{pid}", "w").write(str(os.getpid()))
        while True: signal.pause()
        """))
    until("it ignores SIGTERM", lambda: pid.exists() and pid.read_text())
    daemon.steer("Pause", job)
    paused = daemon.wait_state(job, "PAUSED")
    assert not alive(int(pid.read_text())) and any("did not stop in time and was killed" in n for n in paused.notes)
    daemon.steer("Cancel", job)
    daemon.wait_state(job, "CANCELLED")


def test_a_rank_that_dies_takes_the_others_along_and_is_blamed(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        if os.environ["RANK"] == "1": os.kill(os.getpid(), signal.SIGSEGV)
        while True: signal.pause()
        """, trainer={"devices": 2}))
    found = failed(daemon, job)
    assert found.rank == 1 and "signal 11 (SEGV)" in found.message


# ---- what it says -------------------------------------------------------------------------------
def test_metrics_steps_and_notes_flow_as_of_any_job(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        assert traind.init() and traind.resume_from() is None and not traind.should_stop()
        for step in range(1, 101):
            traind.log({"loss": 1 / step, "odd": float("nan")}, step=step, epoch=step // 50, total_steps=100)
        traind.note("half of it was easy")
        os.write(int(os.environ["TRAIND_FD"]), b"nonsense")
        bad = b'{"step": -1}\\n{"metrics": {"loss": "x", "a_name_that_is_far_too_long' + 50 * b"g" + b'": 1}}'
        os.write(int(os.environ["TRAIND_FD"]), bad)
        """, trainer={"devices": 2}))
    done = daemon.finish(job)
    assert (done.global_step, done.total_steps) == (100, 100)
    points = daemon.points(job, "loss")
    assert [(p.step, p.n_ranks) for p in points] == [(s, 2) for s in range(1, 101)]
    assert points[9].value == pytest.approx(0.1) and points[99].epoch == 2
    notes = "\n".join(done.notes)
    for words in ("half of it was easy", "'nonsense'", "'step' is an integer from 0", "metric 'loss'", "far_too_long"):
        assert words in notes, notes


def test_pause_and_resume_go_on_from_the_registered_checkpoint(daemon, tmp_path):
    kept = tmp_path / "kept"
    job = daemon.submit(python(tmp_path, f"""
        import traind
        traind.init()
        print("from", traind.resume_from(), flush=True)
        first = int(open(traind.resume_from()).read()) if traind.resume_from() else 0
        for step in range(first + 1, 10**9):
            traind.log({{"loss": 1.0}}, step=step)
            if traind.should_stop():
                open("{kept}", "w").write(str(step))
                traind.register_checkpoint("{kept}", step=step, loss=0.5)
                sys.exit(0)
            if first and step > first + 20: sys.exit(0)
            time.sleep(0.001)
        """))
    daemon.wait_step(job, 5)
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    row, = daemon.checkpoints(job)
    assert row.State.Name(row.state) == "REGISTERED" and row.directory == str(kept) and row.metrics["loss"] == 0.5
    assert row.step == int(kept.read_text()) and not row.files
    assert "REGISTERED" in daemon.ctl("checkpoint", "list", job, check=0).stdout
    daemon.restart()  # it is in the catalog, not in somebody's memory
    daemon.steer("Resume", job)
    done = daemon.finish(job)
    assert done.attempt == 2 and done.global_step == row.step + 21 and done.restarts == 0
    assert f"from {kept}" in daemon.output(job)
    assert kept.exists() and len(daemon.checkpoints(job)) == 1
    daemon.ctl("job", "delete", job)
    assert kept.exists()


def test_sigusr1_is_a_word_for_a_command_and_no_signal(daemon, tmp_path):
    job = daemon.submit(python(tmp_path, """
        import traind
        traind.init()
        for step in range(1, 10**9):
            traind.log({"loss": 1.0}, step=step)
            if traind.should_save():
                print("asked", flush=True)
                sys.exit(0)
            time.sleep(0.001)
        """))  # SIGUSR1 would end it
    deaf = daemon.submit(spec("sleep", 3))
    daemon.wait_step(job, 5)
    until("the other runs", lambda: daemon.state(deaf) == "RUNNING")
    os.kill(daemon.process.pid, signal.SIGUSR1)
    assert daemon.finish(job).attempt == 1 and "asked" in daemon.output(job)
    os.kill(daemon.launcher(deaf), signal.SIGUSR1)
    assert daemon.finish(deaf).attempt == 1


def test_adoption_while_a_command_runs(daemon, tmp_path):
    go = tmp_path / "go"
    job = daemon.submit(python(tmp_path, f"""
        import traind
        traind.init()
        step = 0
        while not os.path.exists("{go}"):
            step += 1
            traind.log({{"loss": 1.0}}, step=step)
            time.sleep(0.001)
        """))
    step = daemon.wait_step(job, 3).global_step
    daemon.restart()  # SIGKILL
    daemon.wait_step(job, step + 50)
    go.write_text("")
    done = daemon.finish(job)
    assert (done.attempt, done.restarts) == (1, 0)


def test_a_taken_port_costs_no_restart(cluster, tmp_path):
    daemon = cluster.start("--slots", "1", "--port-range", "21000-21400")
    job = daemon.submit(python(tmp_path, """
        import socket, subprocess, traind
        listen = "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print(1, flush=True); input()"
        if os.environ["TRAIND_ATTEMPT"] == "1":  # somebody takes it, after traind has looked
            thief = subprocess.Popen([sys.executable, "-c", listen, os.environ["MASTER_PORT"]], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert thief.stdout.readline()
            socket.create_server(("", int(os.environ["MASTER_PORT"])))  # as a program that knows no traind ends
        if os.environ["TRAIND_ATTEMPT"] == "2": traind.port_in_use()
        print("port", os.environ["MASTER_PORT"], os.environ["TORCHELASTIC_RESTART_COUNT"])
        """, restart={"max": 0}))
    done = daemon.finish(job)
    assert (done.attempt, done.restarts) == (3, 0)
    assert 21000 <= int(daemon.output(job).split("port ")[1].split()[0]) <= 21400


def test_a_range_without_a_free_port_is_named(cluster):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        daemon = cluster.start("--slots", "1", "--port-range", f"{port}-{port}")
        job = daemon.submit(spec("true", restart={"max": 0}))
        assert f"every port from {port} to {port} is in use" in failed(daemon, job).message


def test_only_who_speaks_can_be_silent(cluster, tmp_path):
    daemon = cluster.start("--slots", "2", "--silent-after-ms", "200")
    speak = "import traind; traind.init(); traind.log({}, step=1); traind.log({}, step=2)"
    quiet = daemon.submit(spec("sleep", 1000, restart={"max": 0, "stuck_timeout": 1}))
    loud = daemon.submit(python(tmp_path, speak + "\nsignal.pause()", restart={"max": 0, "stuck_timeout": 1}))
    found = failed(daemon, loud)
    assert getattr(found, "class") == "stuck" and "silent" in found.message
    assert daemon.state(quiet) == "RUNNING" and not daemon.job(quiet).notes
    daemon.steer("Cancel", quiet)
    daemon.wait_state(quiet, "CANCELLED")


# ---- what is refused ----------------------------------------------------------------------------
def refused(daemon, text, *overrides):
    with pytest.raises(grpc.RpcError) as why:
        daemon.submit(text, *overrides)
    return why.value


@pytest.mark.parametrize("given, words", [
    ({"model": {"name": "mlp"}}, "model (line 1): a job of kind command has no such key, kind train has"),
    ({"optimizer": {"name": "sgd"}}, "optimizer"),
    ({"checkpoint": {"store": "fs"}}, "checkpoint (line 1): a job of kind command has no such key, kinds train and program have"),
    ({"trainer": {"precision": "bf16-mixed"}}, "trainer.precision"),
    ({"stages": ["fit"]}, "stages"),
    ({"env": {"RANK": "3"}}, "env.RANK (line 1): is set by traind and cannot be changed"),
    ({"env": {"TRAIND_FD": "3"}}, "env.TRAIND_FD"),
    ({"env": {"1A": "3"}}, "a variable's name has letters"),
    ({"env": {"A": 1.5}}, "put it in quotes"),
    ({"env": {f"A{i}": "" for i in range(257)}}, "a map of more than 256 keys"),
    ({"env": {"A": "x" * 40000, "B": "x" * 40000}}, "80006 bytes, at most 65536"),
    ({"workdir": "here"}, "an absolute path"),
    ({"command": []}, "a list of 1 to 1024"),
    ({"command": [""]}, "names the program, and is empty"),
    ({"command": "sh -c true"}, "a list of 1 to 1024"),
    ({"kind": "programme"}, "did you mean program?"),
    ({"comand": ["true"]}, "did you mean command?"),
    ({"trainer": {"devices": 3}}, "need 3 slots on one node"),
    ({"resources": {"memory_bytes": 10**15}}, "UNSATISFIABLE: resources.memory_bytes asks for"),
])
def test_bad_spec_is_refused_by_name(daemon, given, words):
    why = refused(daemon, spec(**given) if "command" in given else spec("true", **given))
    said = why.details() + json.dumps([v.decode(errors="replace") if isinstance(v, bytes) else str(v)
                                       for _, v in (why.trailing_metadata() or [])])
    assert words in said, said


def test_train_has_no_command(daemon):
    why = refused(daemon, json.dumps({"command": ["true"]}))
    assert "a job of kind train has no such key, kinds command and program have" in why.details()


def test_node_that_allows_none_refuses_and_another_is_chosen(cluster, tmp_path):
    first = cluster.start("--slots", "1", "--allow", "plugins", name="first")
    why = refused(first, spec("true"))
    assert why.code() == grpc.StatusCode.PERMISSION_DENIED and "--allow commands" in why.details()
    cluster.node(first, 1, "willing", "--allow", "commands")
    until("it is there", lambda: len(first.nodes("READY")) == 2)
    job = first.submit(spec("pwd"))
    first.finish(job)
    assert "/willing/checkpoints/" in first.output(job)


def test_wrong_settings_are_refused_at_the_start(cluster):
    for flags, words in ((["--allow", "everything"], "--allow"), (["--port-range", "80-90"], "--port-range"),
                         (["--allow", "commands", "--plugin-dirs", "/tmp"], "'commands' does not have plugins")):
        daemon = cluster.make(*flags)
        daemon.start(wait=False)
        assert daemon.process.wait(20) != 0 and words in daemon.tail()


def test_plan_says_what_resources_ask_for(daemon, tmp_path):
    path = tmp_path / "spec.json"
    path.write_text(spec("true", trainer={"devices": 2}, resources={"memory_bytes": 1 << 20}))
    said = daemon.ctl("plan", path, check=0).stdout
    assert "there is no plan" in said and "1.0 MiB a rank" in said, said
    assert "no graph to show" in daemon.ctl("plan", path, "--dump-graph", "fuse").stderr
    assert "kind command, which needs a daemon" in daemon.ctl("run", path).stderr
    path.write_text(json.dumps({**json.loads(spec("true")), "format": 1}))
    worker = subprocess.run([BIN / "traind-worker", "plan", "--plan", path], capture_output=True, text=True)
    assert worker.returncode == 20 and "is of kind command" in worker.stderr


# ---- what a stranger would run ------------------------------------------------------------------
def test_example_that_talks_goes_on_after_a_kill(daemon):
    work = daemon.state_dir.parent / "work"
    work.mkdir()
    job = daemon.submit(spec(sys.executable, ROOT / "examples/commands/talk.py", 100000, workdir=str(work),
                             env={"PYTHONPATH": str(CLIENT)}))
    daemon.wait_step(job, 300)
    launcher = daemon.launcher(job)
    rank = int(pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text())
    os.kill(rank, signal.SIGKILL)
    until("it goes on and saves", lambda: any(c.attempt == 2 for c in daemon.checkpoints(job)))
    daemon.steer("Pause", job)
    daemon.wait_state(job, "PAUSED")
    rows = daemon.checkpoints(job)
    first = [c for c in rows if c.attempt == 1]
    second = [c for c in rows if c.attempt == 2]
    assert daemon.job(job).restarts == 1 and min(c.step for c in second) > max(c.step for c in first)
    assert len(list(work.glob("state-*.json"))) == len(rows)


def test_client_does_nothing_outside_of_a_job(tmp_path):
    """Also with a descriptor that is somebody else's."""
    text = ("import traind; assert not traind.init() and not traind.active(); traind.log({'a': 1}, step=1);"
            "traind.note('x'); assert not traind.should_stop() and traind.resume_from() is None;"
            f"traind.register_checkpoint({str(tmp_path)!r}, step=1)")
    for fd in (None, "0", "77", "x"):
        env = {"PYTHONPATH": str(CLIENT), **({"TRAIND_FD": fd} if fd else {})}
        subprocess.run([sys.executable, "-c", text], env=env, check=True, stdin=subprocess.DEVNULL, timeout=60)


def test_client_can_be_installed_from_the_tree(tmp_path):
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index",
                           "--disable-pip-version-check", "--target", tmp_path / "here", CLIENT],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here/traind/__init__.py").exists()


def test_torch_script_over_gloo_is_restarted_after_a_rank_is_killed(daemon, torch_python):
    job = daemon.submit(spec(torch_python, ROOT / "examples/commands/ddp.py", 400, trainer={"devices": 2}))
    state = daemon.state_dir / "checkpoints" / job / "state.pt"
    until("it has kept a state", state.exists, 120)
    pids = [int(line.split("pid ")[1]) for rank in (0, 1)
            for line in text_of(daemon, job, f"out.{rank}.log").splitlines() if "pid " in line]
    os.kill(pids[1], signal.SIGKILL)
    done = daemon.finish(job, deadline_s=180)
    assert (done.attempt, done.restarts) == (2, 1)
    said = daemon.output(job, rank=0)
    again = [int(line.split("after step ")[1].split(",")[0]) for line in said.splitlines() if "after step" in line]
    assert again[-1] >= 10 and "done: step 400" in said


# ---- its directory ------------------------------------------------------------------------------
WRITES = ("import pathlib; d = pathlib.Path('deep/er'); d.mkdir(parents=True); (d / 'out.txt').write_text('x'); "
          "(d / 'link').symlink_to('/etc')")


def test_directory_goes_with_the_job_and_a_given_one_stays(daemon, tmp_path):
    """It stays with --keep-checkpoints, too."""
    given = tmp_path / "given"
    given.mkdir()
    code = [sys.executable, "-c", WRITES]
    goes, stays, elsewhere = jobs = [daemon.submit(spec(*code)), daemon.submit(spec(*code)),
                                     daemon.submit(spec(*code, workdir=str(given)))]
    for job in jobs:
        daemon.finish(job)
    own = {job: daemon.state_dir / "checkpoints" / job for job in jobs}
    assert all((d / "deep/er/out.txt").exists() for d in (own[goes], own[stays], given))
    for args in ([goes], ["--keep-checkpoints", stays], [elsewhere]):
        daemon.ctl("delete", *args)
    attempts = daemon.state_dir / "attempts"
    until("they are deleted", lambda: not own[goes].exists() and not any((attempts / job).exists() for job in jobs))
    assert (own[stays] / "deep/er/out.txt").exists() and (given / "deep/er/out.txt").exists()


def test_retention_leaves_and_lists_what_a_command_wrote(cluster):
    daemon = cluster.start("--retention-jobs", "1", name="d")
    first = daemon.submit(spec(sys.executable, "-c", WRITES + "; [open(f'{i}\"', 'w') for i in range(12)]"))
    daemon.finish(first)
    daemon.finish(daemon.submit(spec("true")))
    ten = ", ".join([r"(?:deep|[0-9]+\\x22)"] * 10)
    daemon.logged_at(f'files of a forgotten job stay job={first} .*names="{ten} and more"')
    assert (daemon.state_dir / "checkpoints" / first / "deep/er/out.txt").exists()

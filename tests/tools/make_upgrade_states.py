#!/usr/bin/env python3
"""make_upgrade_states.py BUILD: writes tests/upgrade/state-N-metrics-M, the state directory of an older traind.

BUILD is the build folder of an older commit: a clone of this repository at that commit, and `make` there. Each schema that
a release had gets a folder here before the schema changes, and keeps it for ever: tests/scenario/deploy/test_s92_upgrade.py opens
them all. N and M are the schema versions of state.db and metrics.db.

  state.sql, metrics.sql   the two databases as text, row by row, digests included; @STATE@ is the folder
  files/                   what else there was: checkpoints, logs, the node's id
  answers.json             what that traind itself said of its jobs, points and checkpoints
"""
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "upgrade"
JOB = """
seed_everything: 1
stages: [fit, test]
model: {name: mlp, layers: [8, 8, 4], activation: relu}
data: {name: synthetic, samples: 128, features: 8, classes: 4, batch_size: 16, shuffle: true}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
trainer: {accelerator: reference, precision: 32-true, log_every_n_steps: 4, max_steps: 40}
checkpoint: {every_n_train_steps: 16, save_top_k: 1}
restart: {max: 0, backoff: [0]}
"""
LONG = {"trainer.max_steps": 40000, "trainer.log_every_n_steps": 1000, "checkpoint.every_n_train_steps": 1000,
        "data.samples": 65536, "trainer.limit_val_batches": 0}
JOBS = {"done": {"trainer.devices": 2}, "failed": {"data": "{name: npy, x: /nonexistent/x.npy, y: /nonexistent/y.npy, batch_size: 16}"},
        "cancelled": LONG, "paused": LONG}
# The databases are kept as text. What is compared are jobs, points, checkpoints and notes, so no audit.log.
LEFT_OUT = {"state.db", "metrics.db", "token", "address", "lock", "audit.log"}


class Old:
    """A daemon of that build, and its client."""

    def __init__(self, build, state):
        self.bin, self.state = Path(build).resolve() / "bin", state
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TRAIND_")} | {"TRAIND_STATE_DIR": str(state)}
        self.process = subprocess.Popen([self.bin / "traind", "--slots", "4", "--name", "upgraded"], env=self.env)

    def ctl(self, *words):
        done = subprocess.run([self.bin / "trainctl", *words], env=self.env, capture_output=True, text=True, timeout=300)
        if words[0] == "submit" and done.returncode != 0:
            raise SystemExit(done.stderr)
        return done.stdout.strip()

    def json(self, *words):
        return json.loads(self.ctl(*words, "-o", "json"))

    def until(self, why, ready):
        for _ in range(600):
            with contextlib.suppress(ValueError):
                if ready():
                    return
            time.sleep(0.1)
        raise SystemExit(f"never: {why}")

    def close(self):
        self.process.terminate()
        if self.process.wait(90) != 0:
            raise SystemExit("traind did not end well")


def run_jobs(old, spec):
    old.until("a node", lambda: "READY" in old.ctl("node", "list"))
    jobs = {}
    for name, sets in JOBS.items():
        words = [w for key, value in {"name": name, **sets}.items() for w in ("--set", f"{key}={value}")]
        jobs[name] = job = old.ctl("submit", spec, *words, "-o", "name")
        if name in ("cancelled", "paused"):
            old.until(f"{name} has a checkpoint", lambda: old.json("describe", job).get("checkpoint"))
            old.ctl(name.removesuffix("led").removesuffix("d"), job)
        old.until(f"{name} is", lambda: old.json("describe", job)["state"] in
                  {"done": ["SUCCEEDED"]}.get(name, [name.upper()]))
    return jobs


def answers(old, jobs):
    found = {}
    for name, job in jobs.items():
        series = [s["name"] for s in old.json("metrics", job).get("series", [])]
        found[name] = {"describe": old.json("describe", job), "checkpoint list": old.json("checkpoint", "list", job),
                       "metrics": {name: old.json("metrics", job, name)["series"] for name in series}}
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        state, spec = Path(folder) / "state", Path(folder) / "job.yaml"
        spec.write_text(JOB)
        old = Old(sys.argv[1], state)
        try:
            said = answers(old, run_jobs(old, spec))
        finally:
            old.close()
        texts, versions = {}, {}
        for name in ("state", "metrics"):
            with contextlib.closing(sqlite3.connect(state / f"{name}.db")) as db:
                texts[name] = "\n".join(db.iterdump()) + "\n"
                versions[name] = db.execute("SELECT max(version) FROM schema").fetchone()[0]
        out = OUT / f"state-{versions['state']}-metrics-{versions['metrics']}"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(state, out / "files", ignore=lambda at, names: [
            n for n in names if at == str(state) and (n in LEFT_OUT or n.endswith(("-wal", "-shm")))])
        texts = {f"{name}.sql": text for name, text in texts.items()}
        texts["answers.json"] = json.dumps(said, sort_keys=True) + "\n"
        for name, text in texts.items():
            (out / name).write_text(text.replace(str(state), "@STATE@"))
        print(out)


if __name__ == "__main__":
    main()

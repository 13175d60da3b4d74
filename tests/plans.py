"""The plan that most scenarios of a worker change, and what they read of its checkpoints and metrics."""
import copy
import pathlib

PLAN = {
    "format": 1, "name": "t", "seed_everything": 7, "stages": ["fit"],
    "model": {"name": "mlp", "layers": [16, 32, 4]},
    "data": {"name": "synthetic", "samples": 500, "batch_size": 32, "shuffle": True},
    "optimizer": {"name": "adamw", "lr": 0.01},
    "trainer": {"accelerator": "reference", "max_epochs": 3, "log_every_n_steps": 1,
                "num_sanity_val_steps": 0},
    "checkpoint": {"every_n_train_steps": 1, "save_top_k": -1},
    "run": {"job": "j", "threads_per_rank": 1},
}


def plan_of(changes=None, **sections):
    plan = copy.deepcopy(PLAN)
    for section, values in sections.items():
        if isinstance(values, dict):
            plan.setdefault(section, {}).update(values)
        else:
            plan[section] = values
    plan.update(changes or {})
    return plan


def losses(records, name="train_loss_step"):
    return {m["step"]: (m["sum"], m["count"]) for m in records if m["name"] == name}


def state_of(step_dir):
    """The bytes of the shards, by name."""
    return {f.name: f.read_bytes() for f in pathlib.Path(step_dir).glob("*.safetensors")}


def steps_in(directory):
    return sorted(int(p.name.split("-")[1]) for p in pathlib.Path(directory).glob("step-*[0-9]"))


def no_leftovers(directory):
    return not [p for p in pathlib.Path(directory).rglob("*") if ".tmp" in p.name]

"""Data whose losses name its samples: the model says 0 of everything, and sample i is off by 2**i, so a sum of squares is
one of powers of 4."""
import numpy as np

MODEL = {"layers": [1, 1], "bias": False, "loss": "mse"}  # of an mlp
MOST = 32  # samples


def arrays(directory, n, n_val=0):
    """The paths, as keys of data npy."""
    paths = {}
    for name, samples in (("", n), ("val_", n_val)):
        for key, values in (("x", np.zeros((samples, 1))), ("y", 2.0 ** np.arange(samples))):
            if samples:
                paths[name + key] = str(directory / f"{name}{key}.npy")
                np.save(paths[name + key], values.astype("f4"))
    return paths


def samples_of(total):
    """Whose losses make that sum; none twice."""
    found = [i for i in range(MOST) if int(total) // 4**i % 4]
    assert sum(4**i for i in found) == int(total)
    return found


def seen(ranks, name):
    """The samples of all ranks that each point of a metric is of, in the order of steps."""
    steps = sorted({m["step"] for m in ranks[0].metrics if m["name"] == name})
    return [samples_of(sum(m["sum"] for r in ranks for m in r.metrics if (m["name"], m["step"]) == (name, s)))
            for s in steps]

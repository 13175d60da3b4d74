"""Arrays as NumPy saves them: .npy in both orders, .npz stored and compressed. All train to the same bits; what is damaged,
also in its middle, is refused by the plan, class data, with file and offset."""
import json

import grpc
import numpy as np
import pytest

from support import until

SPEC = """
seed_everything: 3
stages: [fit, test]
model: {{name: mlp, layers: [12, 8, 3]}}
data: {{name: npy, x: {x}, y: {y}, val_x: {val_x}, val_y: {val_y}, batch_size: 8, shuffle: true}}
optimizer: {{name: sgd, lr: 0.1}}
trainer: {{max_epochs: 2, devices: {devices}, log_every_n_steps: 1}}
"""
KEYS = ("x", "y", "val_x", "val_y")


def arrays():
    rng = np.random.default_rng(0)
    make = lambda n: (rng.standard_normal((n, 3, 2, 2)).astype("<f4"), rng.integers(0, 3, n))
    (x, y), (val_x, val_y) = make(40), make(16)
    return dict(zip(KEYS, (x, y, val_x, val_y)))


def plain(folder, data):
    for name, a in data.items():
        np.save(folder / f"{name}.npy", a)
    return {name: folder / f"{name}.npy" for name in data}


def fortran(folder, data):
    return plain(folder, {name: np.asfortranarray(a) for name, a in data.items()})


def one(save):
    def write(folder, data):
        save(folder / "all.npz", **data)
        return {name: folder / "all.npz" for name in data}
    return write


def by_name(folder, data):
    np.savez_compressed(folder / "all.npz", **{name.upper(): np.asfortranarray(a) for name, a in data.items()})
    return {name: f"{folder}/all.npz:{name.upper()}" for name in data}


def alone(folder, data):
    for name, a in data.items():
        np.savez(folder / f"{name}.npz", a)
    return {name: folder / f"{name}.npz" for name in data}


FORMS = {"fortran": fortran, "npz": one(np.savez), "compressed": one(np.savez_compressed), "named": by_name, "alone": alone}


def outcome(daemon, where, devices=1):
    job = daemon.submit(SPEC.format(devices=devices, **where))
    done = daemon.finish(job)
    return {p.step: p.value for p in daemon.points(job)}, done.metrics["test_loss"], done.metrics["test_accuracy"]


@pytest.mark.parametrize("form, devices", [(f, 1) for f in FORMS] + [("compressed", 2), ("fortran", 2)])
def test_same_numbers_train_to_the_same_bits_in_every_form(daemon, tmp_path, form, devices):
    for name in ("plain", form):
        (tmp_path / name).mkdir()
    wanted = outcome(daemon, plain(tmp_path / "plain", arrays()), devices)
    where = FORMS[form](tmp_path / form, arrays())
    assert outcome(daemon, where, devices) == wanted
    assert outcome(daemon, where, devices) == wanted  # out of the node's cache


def refusal(daemon, where):
    """What a plan says: nothing was started."""
    request = daemon.cluster.stubs.job.PlanJobRequest(spec=SPEC.format(devices=1, **where))
    with pytest.raises(grpc.RpcError) as error:
        daemon.stub("Job").PlanJob(request, timeout=60)
    job = daemon.submit(SPEC.format(devices=1, **where))
    failure = daemon.wait_state(job, "FAILED").failure
    assert getattr(failure, "class") == "data", failure
    assert "offset" in failure.message and failure.message in error.value.details()
    return failure.message


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


def middle_of(path, mark):
    """Somewhere in the data of a member, after its local header."""
    data = path.read_bytes()
    return data.index(mark) + 250


@pytest.mark.parametrize("save, said", [(np.savez, "checksum of the array: expected"),
                                        (np.savez_compressed, "of the array: expected")])
def test_archive_damaged_in_the_middle_is_refused_with_offset(daemon, tmp_path, save, said):
    where = one(save)(tmp_path, arrays())
    flip(tmp_path / "all.npz", middle_of(tmp_path / "all.npz", b"x.npy"))
    text = refusal(daemon, where)
    assert f"{tmp_path}/all.npz:x' offset " in text and said in text, text


def test_archive_that_is_cut_short_is_refused(daemon, tmp_path):
    where = one(np.savez)(tmp_path, arrays())
    path = tmp_path / "all.npz"
    path.write_bytes(path.read_bytes()[:-300])
    assert "its directory, found none: the file is cut short" in refusal(daemon, where)


def test_array_that_an_archive_lacks_is_refused_with_the_names_that_it_has(daemon, tmp_path):
    data = arrays()
    np.savez(tmp_path / "all.npz", images=data["x"], labels=data["y"])
    where = dict(plain(tmp_path, data), x=tmp_path / "all.npz")
    text = refusal(daemon, where)
    assert "expected 'x' (or name another: FILE.npz:NAME), found images, labels" in text, text
    assert "expected 'pictures'" in refusal(daemon, dict(where, x=f"{tmp_path}/all.npz:pictures"))


def test_number_that_is_none_has_its_place_in_the_file_in_fortran_order(daemon, tmp_path):
    data = arrays()
    data["x"][5, 1, 0, 1] = np.nan
    where = fortran(tmp_path, data)
    text = refusal(daemon, where)
    raw = where["x"].read_bytes()
    at = next(i for i in range(len(raw) - 480 * 4, len(raw), 4) if np.isnan(np.frombuffer(raw[i:i + 4], "<f4")[0]))
    assert f"offset {at}: element" in text and "sample 5 is no number" in text, (at, text)


def test_objects_in_an_archive_are_refused(daemon, tmp_path):
    data = arrays()
    np.savez(tmp_path / "all.npz", x=np.array([{}], dtype=object))
    assert "little-endian numbers" in refusal(daemon, dict(plain(tmp_path, data), x=tmp_path / "all.npz"))

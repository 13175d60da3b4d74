"""Weights that traind did not write, and Hugging Face's directories both ways: what fits is taken, what
does not is named, and what is damaged is not believed."""
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ranks import EXIT, run_by_hand
from test_s07_workloads import TEXT

GPT = {"name": "gpt", "n_layer": 2, "n_head": 2, "n_embd": 16}
CONFIG = {"model_type": "gpt2", "n_head": 2, "n_layer": 2, "n_embd": 16, "activation_function": "gelu_new",
          "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}


def plan_of(tmp_path, **changes):
    (tmp_path / "text").write_bytes(TEXT)
    plan = {"format": 1, "name": "w", "seed_everything": 3, "stages": ["fit"], "model": GPT,
            "data": {"name": "text", "path": str(tmp_path / "text"), "block_size": 16, "batch_size": 8},
            "optimizer": {"name": "sgd", "lr": 0.0},
            "trainer": {"accelerator": "reference", "max_steps": 1, "num_sanity_val_steps": 0,
                        "log_every_n_steps": 1, "limit_val_batches": 0},
            "run": {"threads_per_rank": 1}}
    plan.update(changes)
    return plan


def train(tmp_path, out, **changes):
    """One step at rate 0: the weights come out as they went in. Exit code, last line, notes, loss."""
    plan = plan_of(tmp_path, **changes)
    plan["run"] = dict(plan["run"], checkpoint_dir=str(out))
    code, lines = run_by_hand(tmp_path, plan)
    notes = [line["text"] for line in lines if line.get("event") == "note"]
    loss = [line["sum"] / line["count"] for line in lines if line.get("name") == "train_loss_step"]
    return code, lines[-1], notes, loss


@pytest.fixture
def ours(tmp_path):
    """A checkpoint of traind and its tensors."""
    code, end, _, loss = train(tmp_path, tmp_path / "ours")
    assert code == 0, end
    return tmp_path / "ours/step-1", load_file(tmp_path / "ours/step-1/model.safetensors"), loss


def taken(tmp_path):
    return load_file(tmp_path / "out/step-1/model.safetensors")


def directory(tmp_path, tensors, config=CONFIG):
    made = tmp_path / "theirs"
    made.mkdir()
    save_file(tensors, made / "model.safetensors")
    (made / "config.json").write_text(json.dumps(config))
    return made


def test_checkpoint_is_a_hugging_face_directory(ours):
    where, tensors, _ = ours
    config = json.loads((where / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["model_type"] == "gpt2"
    assert (config["n_layer"], config["n_head"], config["n_embd"]) == (2, 2, 16)
    assert (config["vocab_size"], config["n_positions"], config["layer_norm_epsilon"]) == (256, 16, 1e-5)
    assert tensors["transformer.h.1.attn.c_attn.weight"].shape == (16, 48)
    manifest = json.loads((where / "manifest.json").read_text())
    assert "config.json" in [f["name"] for f in manifest["files"]]


@pytest.mark.parametrize("form", ["directory", "file", "without prefix", "with head and masks", "shards",
                                  "f16", "f64"])
def test_weights_are_taken_in_every_form(tmp_path, ours, form):
    where, tensors, loss = ours
    if form == "file":
        source = where / "model.safetensors"
    elif form == "directory":
        source = where
    elif form == "without prefix":
        source = directory(tmp_path, {k.removeprefix("transformer."): v for k, v in tensors.items()})
    elif form == "with head and masks":
        masks = {f"transformer.h.{i}.attn.bias": np.tril(np.ones((1, 1, 16, 16), np.uint8)) for i in range(2)}
        source = directory(tmp_path, tensors | masks | {"lm_head.weight": tensors["transformer.wte.weight"]})
    elif form == "shards":
        source = tmp_path / "theirs"
        source.mkdir()
        names = sorted(tensors)
        halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, part in halves.items():
            save_file({n: tensors[n] for n in part}, source / file)
        index = {"metadata": {"total_size": 0}, "weight_map": {n: f for f, p in halves.items() for n in p}}
        (source / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        kind = {"f16": np.float16, "f64": np.float64}[form]
        source = directory(tmp_path, {k: v.astype(kind) for k, v in tensors.items()})
    code, end, notes, again = train(tmp_path, tmp_path / "out", init_from=str(source), seed_everything=9)
    assert code == 0 and not notes, end
    got = taken(tmp_path)
    assert got.keys() == tensors.keys()
    for name, t in tensors.items():
        wanted = t.astype(np.float16).astype(np.float32) if form == "f16" else t
        assert np.array_equal(got[name], wanted), name
    assert again == pytest.approx(loss, rel=1e-3)


def damaged(tensors):
    t = dict(tensors)
    del t["transformer.h.1.ln_2.bias"]
    t["transformer.wpe.weight"] = np.zeros((8, 16), np.float32)
    t["transformer.ln_f.bias"] = np.zeros(16, np.int32)
    t["classifier.weight"] = np.zeros((2, 16), np.float32)
    return t


MISFITS = ("'transformer.h.1.ln_2.bias' is missing",
           "'transformer.wpe.weight' has shape (8, 16), the model's is (16, 16)",
           "'transformer.ln_f.bias' is of type i32, the model's of f32",
           "'classifier.weight' is no tensor of the model")


# Contract 37: what does not fit is refused when strict
def test_each_tensor_is_named_when_it_does_not_fit(tmp_path, ours):
    source = directory(tmp_path, damaged(ours[1]))
    code, end, _, _ = train(tmp_path, tmp_path / "out", init_from=str(source))
    assert code == EXIT["bad_spec"] and end["class"] == "bad_spec"
    assert "does not fit the model in 4 tensors" in end["message"] and "strict: false" in end["message"]
    assert all(m in end["message"] for m in MISFITS), end["message"]


# Contract 37: what does not fit is skipped when not strict
def test_rest_is_loaded_and_skips_are_reported_when_not_strict(tmp_path, ours):
    source = directory(tmp_path, damaged(ours[1]))
    code, end, notes, _ = train(tmp_path, tmp_path / "out", init_from=str(source), strict=False,
                                seed_everything=9)
    assert code == 0, end
    assert "25 tensors loaded, 4 skipped" in notes[0]
    assert all(any(m in n for n in notes) for m in MISFITS), notes
    for name, t in taken(tmp_path).items():
        spared = name in ("transformer.h.1.ln_2.bias", "transformer.ln_f.bias")  # zero in any case
        assert np.array_equal(t, ours[1][name]) == (name != "transformer.wpe.weight") or spared, name


FOREIGN = {"quantized.zeros": np.zeros((2, 3), np.uint16), "quantized.scale": np.zeros(3, np.int8),
           "counter": np.zeros((), np.uint64), "deep": np.zeros((1,) * 12, np.float32)}


def with_fp8(path, name):
    """The file with a tensor of 5 bytes in a type that numpy does not have."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8:8 + length]), data[8 + length:]
    header[name] = {"dtype": "F8_E4M3", "shape": [5], "data_offsets": [len(rest), len(rest) + 5]}
    path.write_bytes(shard(header, rest + bytes(5)))


@pytest.mark.parametrize("strict", [True, False])
def test_tensors_of_other_types_are_left_over_like_any_other(tmp_path, ours, strict):
    tensors = dict(ours[1], **FOREIGN)
    tensors["transformer.ln_f.bias"] = np.zeros(16, np.uint16)  # of the model
    source = directory(tmp_path, tensors)
    with_fp8(source / "model.safetensors", "eighths")
    code, end, notes, _ = train(tmp_path, tmp_path / "out", init_from=str(source), strict=strict, seed_everything=9)
    said = end["message"] if strict else " ".join(notes)
    assert code == (EXIT["bad_spec"] if strict else 0), end
    for name in (*FOREIGN, "eighths"):
        assert f"'{name}' is no tensor of the model" in said, said
    assert "'transformer.ln_f.bias' is of type U16, the model's of type f32" in said, said
    if not strict:
        assert "27 tensors loaded, 6 skipped" in notes[0], notes
        assert np.array_equal(taken(tmp_path)["transformer.wte.weight"], ours[1]["transformer.wte.weight"])


def test_all_are_named_in_notes_when_they_are_many(tmp_path, ours):
    source = directory(tmp_path, {f"a.rather.long.name.of.a.tensor.{i}": np.zeros(1, np.float32)
                                  for i in range(100)})
    code, end, notes, _ = train(tmp_path, tmp_path / "out", init_from=str(source), strict=False)
    assert code == EXIT["bad_spec"] and "(the notes have all)" in end["message"]
    said = "; ".join(n.removeprefix("init_from: ") for n in notes).split("; ")
    assert len(said) == 128 and len(set(said)) == 128


@pytest.mark.parametrize("change, text", [
    ({"n_head": 4}, "n_head: 4, the model has 2"),
    ({"model_type": "llama"}, "model_type: llama, the model has gpt2"),
    ({"activation_function": "relu"}, "activation_function: relu, the model has gelu_new"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings: false"),
    ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon: 1e-06, the model has 1e-05"),
    ({"n_head": None}, "leaves out n_head, which is then 12, the model has 2"),
    ({"n_head": "2"}, "n_head: no number, the model has 2"),
    ({"activation_function": 1}, "activation_function: no text"),
])
def test_config_is_refused_when_it_is_of_another_network(tmp_path, ours, change, text):
    config = {k: v for k, v in dict(CONFIG, **change).items() if v is not None}
    source = directory(tmp_path, ours[1], config)
    code, end, _, _ = train(tmp_path, tmp_path / "out", init_from=str(source), model=dict(GPT, layer_norm_epsilon=1e-5))
    assert code == EXIT["bad_spec"] and "config.json" in end["message"] and text in end["message"]


@pytest.mark.parametrize("strict", [True, False])
def test_all_that_differs_is_told_at_once(tmp_path, ours, strict):
    """Of config.json and of the tensors. Another network is refused though it need not be strict."""
    config = dict(CONFIG, n_head=4, activation_function="relu", scale_attn_weights=False, layer_norm_epsilon=1e-3)
    source = directory(tmp_path, damaged(ours[1]), config)
    code, end, _, _ = train(tmp_path, tmp_path / "out", init_from=str(source), strict=strict,
                            model=dict(GPT, layer_norm_epsilon=1e-5))
    assert code == EXIT["bad_spec"], end
    for text in ("n_head: 4, the model has 2", "activation_function: relu, the model has gelu_new",
                 "scale_attn_weights: false, the model has true", "layer_norm_epsilon: 0.001, the model has 1e-05",
                 "does not fit the model in 4 tensors", *MISFITS):
        assert text in end["message"], end["message"]
    assert "strict" not in end["message"], "it would not help"


def test_config_fits_when_it_leaves_out_or_names_otherwise_what_the_model_has(tmp_path, ours):
    """transformers' defaults where a key is missing, and another name of the same function."""
    config = {"n_head": 2, "activation_function": "gelu_pytorch_tanh", "scale_attn_weights": None}
    source = directory(tmp_path, ours[1], config)
    code, end, _, _ = train(tmp_path, tmp_path / "out", init_from=str(source))
    assert code == 0, end


def test_config_is_refused_when_it_leaves_out_a_function_that_the_model_has_not(tmp_path, ours):
    config = {k: v for k, v in CONFIG.items() if k != "activation_function"}
    source = directory(tmp_path, ours[1], config)
    code, end, _, _ = train(tmp_path, tmp_path / "out", init_from=str(source),
                            model=dict(GPT, activation_function="gelu"))
    assert code == EXIT["bad_spec"], end
    assert "leaves out activation_function, which is then gelu_new, the model has gelu" in end["message"]


LLAMA = {"name": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture
def llama(tmp_path):
    code, end, _, loss = train(tmp_path, tmp_path / "ours", model=LLAMA)
    assert code == 0, end
    where = tmp_path / "ours/step-1"
    return json.loads((where / "config.json").read_text()), load_file(where / "model.safetensors"), loss


def test_llama_comes_back_from_what_it_wrote(tmp_path, llama):
    config, tensors, loss = llama
    assert config["architectures"] == ["LlamaForCausalLM"] and config["model_type"] == "llama"
    assert (config["num_key_value_heads"], config["head_dim"], config["vocab_size"]) == (2, 4, 256)
    assert tensors["model.layers.1.self_attn.k_proj.weight"].shape == (8, 16)
    bare = {k.removeprefix("model."): v for k, v in tensors.items()}
    angles = {"layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}  # of older files
    code, end, notes, again = train(tmp_path, tmp_path / "out", model=LLAMA, seed_everything=9,
                                    init_from=str(directory(tmp_path, bare | angles, config)))
    assert code == 0 and not notes and again == pytest.approx(loss, rel=1e-5), end
    assert all(np.array_equal(t, tensors[name]) for name, t in taken(tmp_path).items())


@pytest.mark.parametrize("change, text", [
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling.low_freq_factor"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rope_type 'yarn'"),
    ({"attention_bias": True}, "attention_bias: true, the model has false"),
    ({"rope_theta": 5e5}, "rope_theta: 500000, the model has 10000"),
])
def test_llama_is_refused_when_it_is_another_one(tmp_path, llama, change, text):
    source = directory(tmp_path, llama[1], llama[0] | change)
    code, end, _, _ = train(tmp_path, tmp_path / "out", model=dict(LLAMA, rope_theta=10000), init_from=str(source))
    assert code == EXIT["bad_spec"] and "config.json" in end["message"] and text in end["message"], end


@pytest.mark.parametrize("change", [
    {"rope_theta": 5e5, "rms_norm_eps": 1e-5},
    {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "tie_word_embeddings": True},
])
def test_directory_brings_what_shapes_do_not_show(tmp_path, llama, change):
    """What the spec leaves open is as config.json says; what it gives is held against that."""
    tied = change.get("tie_word_embeddings", False)
    tensors = {k: v for k, v in llama[1].items() if not (tied and k == "lm_head.weight")}
    config = {k: v for k, v in dict(llama[0], **change).items() if v is not None}
    source = directory(tmp_path, tensors, config)
    code, end, _, _ = train(tmp_path, tmp_path / "out", model={"name": "llama"}, init_from=str(source))
    assert code == 0, end
    wrote = json.loads((tmp_path / "out/step-1/config.json").read_text())
    assert wrote["rope_theta"] == 5e5 and wrote["tie_word_embeddings"] is tied
    assert wrote["rms_norm_eps"] == change.get("rms_norm_eps", llama[0]["rms_norm_eps"])
    given = {"name": "llama", "rope_theta": 10000, "tie_word_embeddings": not tied}
    code, end, _, _ = train(tmp_path, tmp_path / "other", model=given, init_from=str(source))
    assert code == EXIT["bad_spec"] and "rope_theta: 500000, the model has 10000" in end["message"], end
    assert "tie_word_embeddings" in end["message"]


def test_llama_misses_its_head_when_the_weights_are_tied(tmp_path, llama):
    tensors = {k: v for k, v in llama[1].items() if k != "lm_head.weight"}
    code, end, _, _ = train(tmp_path, tmp_path / "out", model=LLAMA,
                            init_from=str(directory(tmp_path, tensors, llama[0])))
    assert code == EXIT["bad_spec"] and "'lm_head.weight' is missing" in end["message"], end


def shard(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize("file, text", [
    (shard({"a": A}, length=1 << 32), "header length is out of range"),
    (shard({"a": A}, bytes(8), length=(1 << 64) - 1), "header length is out of range"),
    (shard({"a": dict(A, data_offsets=[0, 80])}, bytes(8)), "data_offsets"),
    (shard({"a": dict(A, data_offsets=[8, 16])}, bytes(16)), "data_offsets leave a hole"),
    (shard({"a": A, "b": dict(A, data_offsets=[4, 12])}, bytes(12)), "data_offsets overlap"),
    (shard(b'{"a":%b,"a":%b}' % ((json.dumps(A).encode(),) * 2), bytes(8)), "duplicate"),
    (shard({"a": dict(A, dtype="Q4")}, bytes(8)), "unknown dtype"),
    (b"{}", "shorter than a header"),
])
def test_shard_is_refused_when_it_lies(tmp_path, file, text):
    (tmp_path / "bad.safetensors").write_bytes(file)
    code, end, _, _ = train(tmp_path, tmp_path / "out", init_from=str(tmp_path / "bad.safetensors"))
    assert code == EXIT["data"] and end["class"] == "data"
    assert "bad.safetensors" in end["message"] and text in end["message"], end["message"]


@pytest.mark.parametrize("index, code, text", [
    ({"weight_map": {"a": "../x.safetensors"}}, "data", "not the name of a file"),
    ({"weight_map": {"a": "none.safetensors"}}, "data", "none.safetensors"),
    ({"weight_map": {"a": "one.safetensors"}}, "data", "no file has the tensor that it lists, 'a'"),
    ({"weights": {}}, "data", "weight_map"),
    ([], "data", "no object"),
    (None, "bad_spec", "has neither model.safetensors nor model.safetensors.index.json"),
])
def test_index_is_refused_when_it_lies(tmp_path, index, code, text):
    source = tmp_path / "theirs"
    source.mkdir()
    save_file({"b": np.zeros(1, np.float32)}, source / "one.safetensors")
    if index is not None:
        (source / "model.safetensors.index.json").write_text(json.dumps(index))
    exit_code, end, _, _ = train(tmp_path, tmp_path / "out", init_from=str(source))
    assert exit_code == EXIT[code] and text in end["message"], end["message"]

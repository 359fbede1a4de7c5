"""Makes golden cases of encoder models: tiny random weights with the outputs of Hugging Face's own implementation.

    generate.py specs.json OUT [--only NAME] [--check]

`build` writes the files of a case (weights, tokenizer, modules, inputs); `compute` reads ONLY those files and produces
the outputs; `--check` is `compute` again, compared with what is stored. A case has one of two kinds:

token cases (`batches`), as encoders and classifiers see them:
    batch{i}.last_hidden_state   [B, T, hidden], rows of padding are zero
    batch{i}.{mean|cls}          [B, hidden], L2-normalised
    batch{i}.logits, .scores     classifiers: raw logits and their sigmoid
  computed in float64 from the stored weights; the tolerance is ten times what float32 loses, at least 2e-6 of the
  largest value.

text cases (`texts`), complete sentence-transformers folders:
    embeddings                   [texts, dim], SentenceTransformer.encode(texts): its default prompt applies
    embeddings.{prompt}          the same with prompt_name={prompt}, for every name in inputs.json's `prompt_names`
  computed in float32; the tolerance is 1e-5 of the largest value.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TORCHDYNAMO_DISABLE="1")

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)  # fixed summation order
torch.set_grad_enabled(False)
HERE = Path(__file__).parent


def rng(*names):
    """A generator that depends on names, not on the order of calls."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))


def write_json(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------------------------ build


def randomize(model, seed):
    """Every parameter gets a value that makes its block matter: no zero biases, no unit norms."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    for name, p in model.named_parameters():
        noise = rng(seed, name).standard_normal(p.shape)
        if p.ndim == 1:
            value = 1 + 0.3 * noise if name.endswith("weight") else 0.2 * noise
        elif id(p) in embeddings:
            value = 0.5 * noise
        else:
            value = 1.2 * noise / np.sqrt(p.shape[1])
        p.copy_(torch.from_numpy(value.astype(np.float32)))
    return model


def save_weights(spec, case):
    """`saved_as` saves a bigger model than the one that is computed: with a head and with its prefix on every name."""
    cls = getattr(transformers, spec.get("saved_as", spec["model_class"]))
    torch.manual_seed(0)
    model = randomize(cls(cls.config_class(**spec["config"]), **spec.get("init", {})), spec["case"])
    model.to(getattr(torch, spec["dtype"])).save_pretrained(case)
    (case / "generation_config.json").unlink(missing_ok=True)
    if prefix := spec.get("position_ids"):  # the buffer that older releases stored
        file = case / "model.safetensors"
        ids = torch.arange(spec["config"]["max_position_embeddings"])[None]
        save_file(load_file(file) | {prefix + "embeddings.position_ids": ids}, file, {"format": "pt"})
    if spec.get("old_config"):  # what transformers before version 5 wrote
        config = read_json(case / "config.json")
        config["torch_dtype"] = config.pop("dtype")
        if rope := config.pop("rope_parameters", None):
            config |= {"global_rope_theta": rope["full_attention"]["rope_theta"], "local_rope_theta": rope["sliding_attention"]["rope_theta"]}
            config["global_attn_every_n_layers"] = 3
            config.pop("layer_types")
        write_json(case / "config.json", config)


def batch_of(spec, index, batch):
    pad, vocab, width = spec.get("pad_id", 0), spec["config"]["vocab_size"], max(batch)
    rows = [rng(spec["case"], "ids", index, i).integers(3, vocab, n).tolist() for i, n in enumerate(batch)]
    out = {
        "input_ids": [r + [pad] * (width - len(r)) for r in rows],
        "attention_mask": [[1] * len(r) + [0] * (width - len(r)) for r in rows],
    }
    if spec.get("token_types"):  # the second half of every row is segment 1
        out["token_type_ids"] = [[int(len(r) > 1 and j >= len(r) // 2 and j < len(r)) for j in range(width)] for r in rows]
    return out


def write_tokenizer(spec, case):
    folder = HERE / "tokenizers" / spec["tokenizer"]
    for name in spec.get("tokenizer_files", sorted(os.listdir(folder))):
        shutil.copy(folder / name, case / name)


def write_modules(spec, case):
    """The module files beside the model: pooling, dense layers, normalisation, prompts."""
    st, hidden = spec["modules"], spec["config"].get("hidden_size") or spec["config"]["dim"]
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    pooling = st["pooling"]
    if isinstance(pooling, dict):  # today's form: names, in the order of concatenation
        config, count = {"embedding_dimension": hidden} | pooling, len(np.atleast_1d(pooling["pooling_mode"]))
    else:  # the older form: a flag for each mode, concatenated in a fixed order
        config, count = {"word_embedding_dimension": hidden}, len(pooling)
        for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"):
            config[f"pooling_mode_{mode}"] = mode in pooling
        config["include_prompt"] = st.get("include_prompt", True)
    write_json(case / "1_Pooling/config.json", config)
    width = hidden * count
    for i, dense in enumerate(st.get("dense", [])):
        name, out = f"{len(modules)}_Dense", dense["out_features"]
        modules.append((name, "Dense"))
        write_json(case / name / "config.json", {"in_features": width, "out_features": out, "bias": dense["bias"],
                                                 "activation_function": f"torch.nn.modules.{dense['activation']}"})
        tensors = {"linear.weight": rng(spec["case"], "dense", i).standard_normal((out, width)) / np.sqrt(width)}
        if dense["bias"]:
            tensors["linear.bias"] = 0.2 * rng(spec["case"], "bias", i).standard_normal(out)
        save_file({k: torch.tensor(v, dtype=torch.float32) for k, v in tensors.items()}, case / name / "model.safetensors")
        width = out
    if st["normalize"]:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
    write_json(case / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{cls}"}
                                       for i, (path, cls) in enumerate(modules)])
    write_json(case / "sentence_bert_config.json", {"max_seq_length": st["max_seq_length"], "do_lower_case": False})
    if "prompts" in st:
        write_json(case / "config_sentence_transformers.json", {
            "prompts": st["prompts"], "default_prompt_name": st.get("default_prompt_name"), "similarity_fn_name": "cosine"})


def build(spec, case):
    if case.exists():
        shutil.rmtree(case)
    case.mkdir(parents=True)
    save_weights(spec, case)
    if "modules" not in spec:
        write_json(case / "inputs.json", {
            "model_class": spec["model_class"], "kind": spec["kind"], "batches": [batch_of(spec, i, b) for i, b in enumerate(spec["batches"])]
        } | ({"poolings": spec["poolings"]} if "poolings" in spec else {}))
        return
    write_tokenizer(spec, case)
    write_modules(spec, case)
    texts = read_json(HERE / "texts.json")
    model = sentence_transformer(case)
    default = spec["modules"].get("prompts", {}).get(spec["modules"].get("default_prompt_name"), "")
    ids = model.tokenizer([default + t for t in texts], truncation=True, max_length=model.max_seq_length)["input_ids"]
    inputs = {"texts": texts, "max_seq_length": model.max_seq_length, "token_ids": ids}
    if "prompts" in spec["modules"]:
        inputs["prompt_names"] = list(spec["modules"]["prompts"])
    write_json(case / "inputs.json", inputs)


# ------------------------------------------------------------------------------------------------ compute


class Float64Mode(TorchFunctionMode):
    """Turns the float32 up-casts inside transformers into float64 ones, so that `.double()` is meant."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        swap = lambda x: torch.float64 if x is torch.float32 else x
        return func(*[swap(a) if isinstance(a, torch.dtype) else a for a in args],
                    **{k: swap(v) if isinstance(v, torch.dtype) else v for k, v in (kwargs or {}).items()})


def sentence_transformer(case):
    from sentence_transformers import SentenceTransformer

    # Told at the start: a half-precision checkpoint would otherwise round the modules after it, too.
    return SentenceTransformer(str(case), device="cpu", model_kwargs={"dtype": torch.float32})


def l2(x):
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def compute_tokens(case, inputs, double):
    cls = getattr(transformers, inputs["model_class"])
    model = cls.from_pretrained(case, dtype=torch.float32, attn_implementation="eager")
    outputs = {}
    try:
        if double:
            torch.set_default_dtype(torch.float64)  # rotary tables are made when the model is
            state = model.state_dict()
            with Float64Mode():
                model = cls(model.config)
            model.double().load_state_dict(state)
        model.eval()
        for i, batch in enumerate(inputs["batches"]):
            tensors = {k: torch.tensor(v) for k, v in batch.items()}
            mask = tensors["attention_mask"][..., None]
            if double:
                with Float64Mode():
                    out = model(**tensors)
            else:
                out = model(**tensors)
            if inputs["kind"] == "classify":
                outputs[f"batch{i}.logits"], outputs[f"batch{i}.scores"] = out.logits, out.logits.sigmoid()
                continue
            hidden = out.last_hidden_state * mask
            outputs[f"batch{i}.last_hidden_state"] = hidden
            if "mean" in inputs["poolings"]:
                outputs[f"batch{i}.mean"] = l2(hidden.sum(1) / mask.sum(1))
            if "cls" in inputs["poolings"]:
                outputs[f"batch{i}.cls"] = l2(hidden[:, 0])
    finally:
        torch.set_default_dtype(torch.float32)
    return outputs


def compute(case):
    """(outputs to store, tolerance of each)"""
    inputs = read_json(case / "inputs.json")
    if "texts" in inputs:
        model, texts = sentence_transformer(case), inputs["texts"]
        out = {"embeddings": model.encode(texts, batch_size=8, convert_to_tensor=True)}
        for name in inputs.get("prompt_names", []):
            out[f"embeddings.{name}"] = model.encode(texts, prompt_name=name, batch_size=8, convert_to_tensor=True)
        return out, {k: 1e-5 * float(v.abs().max()) for k, v in out.items()}
    single, double = compute_tokens(case, inputs, False), compute_tokens(case, inputs, True)
    loss = {k: float((single[k] - v).abs().max()) for k, v in double.items()}
    return double, {k: max(10 * loss[k], 2e-6 * float(v.abs().max())) for k, v in double.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("specs", type=Path)
    ap.add_argument("out", type=Path)
    ap.add_argument("--only", default="", help="a part of the case's name")
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    failed = []
    for spec in read_json(args.specs):
        case = args.out / spec["case"]
        if args.only not in spec["case"]:
            continue
        if args.check:
            compared = read_json(case / "meta.json")["compare"]
            stored, (got, _) = load_file(case / "expected.safetensors"), compute(case)
            bad = [k for k in compared if (stored[k] - got[k]).abs().max() > compared[k]["atol"]]
            failed += [spec["case"]] * bool(bad)
            print("FAIL" if bad else "ok  ", spec["case"], *bad, flush=True)
            continue
        build(spec, case)
        outputs, tolerance = compute(case)
        save_file({k: v.float().contiguous().clone() for k, v in outputs.items()}, case / "expected.safetensors")
        write_json(case / "meta.json", {
            "case": spec["case"], "family": spec["family"], "description": spec["description"],
            "reference_precision": "float32" if "modules" in spec else "float64, rounded to float32",
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "compare": {k: {"atol": float(f"{t:.1e}"), "rtol": 0.0} for k, t in tolerance.items()},
        })
        size = sum(f.stat().st_size for f in case.rglob("*") if f.is_file())
        print(f"{spec['case']:32s} {size / 1024:5.0f} KiB  tolerance {max(tolerance.values()):.1e}", flush=True)
    sys.exit(f"{len(failed)} failed" if failed else 0)


if __name__ == "__main__":
    main()

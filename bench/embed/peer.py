"""A peer of `lattice embed`, as a worker of the harness: `peer.py NAME MODEL_DIR --threads N --onnx DIR`.

    ort-fp32, ort-int8   ONNX Runtime on a torch.onnx export of the same weights (int8: dynamically quantized); token
                         embeddings out, masked mean and normalisation here; batches of 32, sorted by length
    st-fp32, st-bf16     sentence-transformers on PyTorch, with its own batching
    export               no peer: makes the files of the first two

Request  {"texts": [...], "reps": N, "vectors": FILE?}  ->  {"seconds": [...]}: tokenization to vectors, N times; FILE gets
the vectors of the last time as little-endian float32 [texts, dim].
Request  {"roof": true}  ->  {"gflops": ...}: the best product of two 2048 x 2048 float32 matrices that PyTorch does here.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")
warnings.filterwarnings("ignore")

import numpy as np

BATCH = 32


def export(model_dir, onnx_dir):
    """Writes fp32.onnx and int8.onnx, complete or not at all."""
    import torch
    from onnxruntime.quantization import quantize_dynamic
    from transformers import AutoModel

    class Tokens(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state

    x = torch.ones(2, 16, dtype=torch.long)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    model = Tokens(AutoModel.from_pretrained(model_dir, attn_implementation="eager").eval())
    partial = onnx_dir.with_name(onnx_dir.name + ".part")
    partial.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(model, (x, x.clone(), torch.zeros_like(x)), str(partial / "fp32.onnx"), input_names=names, output_names=["tokens"],
                      opset_version=17, dynamo=False, dynamic_axes={n: {0: "batch", 1: "sequence"} for n in names + ["tokens"]})
    quantize_dynamic(str(partial / "fp32.onnx"), str(partial / "int8.onnx"))
    partial.rename(onnx_dir)


def onnx_runtime(model_dir, onnx_dir, threads, precision):
    import onnxruntime
    from tokenizers import Tokenizer

    if not onnx_dir.exists():  # in a process of its own: PyTorch's memory and threads are not this peer's
        subprocess.run([sys.executable, __file__, "export", model_dir, "--onnx", onnx_dir], check=True)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(onnx_dir / f"{precision}.onnx"), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    tokenizer.enable_truncation(json.loads((model_dir / "sentence_bert_config.json").read_text())["max_seq_length"])
    tokenizer.enable_padding()

    def encode(texts):
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        out = None
        for b in range(0, len(order), BATCH):
            rows = order[b : b + BATCH]
            encoded = tokenizer.encode_batch([texts[i] for i in rows])
            ids, mask = np.array([e.ids for e in encoded]), np.array([e.attention_mask for e in encoded])
            tokens = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})[0]
            pooled = (tokens * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            if out is None:
                out = np.empty((len(texts), pooled.shape[1]), np.float32)
            out[rows] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return out

    return encode, {"onnxruntime": onnxruntime.__version__}


def sentence_transformers(model_dir, threads, bf16):
    import sentence_transformers as st
    import torch

    torch.set_num_threads(threads)
    model = st.SentenceTransformer(str(model_dir), device="cpu")
    model = model.bfloat16() if bf16 else model.float()
    encode = lambda texts: model.encode(texts, batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False).float().numpy()
    return encode, {"sentence-transformers": st.__version__, "torch": torch.__version__}


def roof(threads):
    import torch

    torch.set_num_threads(threads)
    a, b, best = torch.rand(2048, 2048), torch.rand(2048, 2048), 1e9
    for _ in range(5):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * 2048**3 / best / 1e9


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("name", choices=["export", "ort-fp32", "ort-int8", "st-fp32", "st-bf16"])
    ap.add_argument("model", type=Path)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--onnx", type=Path, help="folder for the exported files")
    a = ap.parse_args()
    if a.name == "export":
        return export(a.model, a.onnx)
    answers = os.fdopen(os.dup(1), "w", buffering=1)  # what libraries print must not come between the answers
    os.dup2(2, 1)
    kind, precision = a.name.split("-")
    if kind == "ort":
        encode, versions = onnx_runtime(a.model, a.onnx, a.threads, precision)
    else:
        encode, versions = sentence_transformers(a.model, a.threads, precision == "bf16")
    print(json.dumps({"ready": a.name, "versions": versions}), file=answers)
    for line in sys.stdin:
        request, seconds = json.loads(line), []
        if request.get("roof"):
            print(json.dumps({"gflops": roof(a.threads)}), file=answers)
            continue
        for _ in range(request["reps"]):
            start = time.perf_counter()
            vectors = encode(request["texts"])
            seconds.append(time.perf_counter() - start)
        if request.get("vectors"):
            vectors.astype("<f4").tofile(request["vectors"])
        print(json.dumps({"seconds": seconds}), file=answers)


if __name__ == "__main__":
    main()

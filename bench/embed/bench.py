"""`bench/embed/run`: embeds the workloads with ours and with the peers, in turn, and prints medians, spread, ratios and
the distance from the float32 reference. Exit code 1 if ours is further from it than 1e-5, or takes more memory than the
weights + 15 % + 64 MiB."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
import texts as workloads

MODEL = "all-minilm-l6-v2"
LIMIT = 1e-5  # how far ours may be from float32, anywhere


def build(*target):
    """Builds a program in release; its path."""
    args = ["cargo", "build", "--release", *target, "--message-format=json-render-diagnostics"]
    out = subprocess.run(args, cwd=harness.ROOT, stdout=subprocess.PIPE, text=True)
    if out.returncode:
        raise SystemExit("the build failed")
    return next(m["executable"] for m in map(json.loads, out.stdout.splitlines()) if m.get("executable"))


def catalog_model():
    """Where the catalog's model lies; fetched if it is not there."""
    command = [build("-p", "lattice"), "pull", MODEL, "--json"]
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return Path(rows[0]["path"])


def gflop(counts, config):
    """Multiply-adds (two operations each) that the encoder's matrix products take on rows of these lengths."""
    h, i, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    return layers * sum(n * (8 * h * h + 4 * h * i) + 4 * n * n * h for n in counts) / 1e9


def distance(got, reference):
    """(largest absolute difference, smallest cosine)"""
    return float(np.abs(got - reference).max()), float((got * reference).sum(1).min())


def measure(threads, args, ours, model, onnx):
    """One row a (workload, contestant)."""
    peer = lambda name: [sys.executable, Path(__file__).parent / "peer.py", name, model, "--threads", threads, "--onnx", onnx]
    workers = [harness.Worker(p, peer(p), threads) for p in args.peers]
    workers.insert(0, harness.Worker("lattice", [ours, "--model", model, "--threads", threads], threads))
    oracle = next((w for w in workers if w.name == "st-fp32"), None) or harness.Worker("st-fp32", peer("st-fp32"), threads)
    config = json.loads((model / "config.json").read_text())
    facts = {"versions": {k: v for w in workers for k, v in w.facts.get("versions", {}).items()}, "roof_gflops": oracle.ask(roof=True)["gflops"]}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        file = str(Path(scratch) / "vectors.f32")

        def vectors(worker, texts):
            worker.ask(texts=texts, reps=1, vectors=file)
            return np.fromfile(file, "<f4").reshape(len(texts), -1)

        for name in args.only:
            texts, reference = workloads.workload(name, args.workloads)
            if reference is None:
                reference = vectors(oracle, texts)
            work = gflop(workloads.token_counts(texts, model), config)
            errors = {w.name: distance(vectors(w, texts), reference) for w in workers}
            seconds = harness.alternate(workers, {"texts": texts, "reps": 20 if len(texts) == 1 else 1}, args.rounds)
            best_peer = min(harness.spread(seconds[p])["median"] for p in args.peers) if args.peers else None
            for w in workers:
                s = harness.spread(seconds[w.name])
                rows.append({
                    "workload": name, "threads": threads, "who": w.name, "texts": len(texts), "seconds": s,
                    "texts_per_s": len(texts) / s["median"], "gflops": work / s["median"], "max_abs_error": errors[w.name][0],
                    "min_cosine": errors[w.name][1], "times_best_peer": best_peer / s["median"] if best_peer else None,
                })
    facts["peak_mib"] = {w.name: w.peak_mib() for w in workers}
    facts["memory_bound_mib"] = (model / "model.safetensors").stat().st_size / 2**20 * 1.15 + 64
    for w in {*workers, oracle}:
        w.close()
    return rows, facts


def show(rows, facts):
    for threads in dict.fromkeys(r["threads"] for r in rows):
        f = facts[str(threads)]
        print(f"\n{threads} thread{'s' if threads > 1 else ''}; PyTorch's own float32 product reaches {f['roof_gflops']:.0f} GFLOP/s here")
        cells = [[f"{r['workload']} {r['who']}", f"{r['seconds']['median'] * 1e3:.2f}", f"{r['seconds']['min'] * 1e3:.2f}–{r['seconds']['max'] * 1e3:.2f}",
                  f"{r['texts_per_s']:.1f}", f"{r['times_best_peer']:.2f}" if r["times_best_peer"] else "", f"{r['gflops']:.0f}",
                  f"{r['gflops'] / f['roof_gflops']:.0%}", f"{r['max_abs_error']:.1e}", f"{r['min_cosine']:.6f}"]
                 for r in rows if r["threads"] == threads]
        print(harness.table(["", "median ms", "min–max", "texts/s", "× best peer", "GFLOP/s", "of product", "max error", "min cosine"], cells))
        print("peak memory, MiB:", ", ".join(f"{k} {v:.0f}" for k, v in f["peak_mib"].items()), f"(promised: {f['memory_bound_mib']:.0f})")


def main():
    ap = argparse.ArgumentParser(prog="bench/embed/run", description=__doc__)
    split = lambda s: [x for x in s.split(",") if x]
    ap.add_argument("--threads", type=lambda s: [int(x) for x in split(s)], default=[2, 1], metavar="N,…")
    ap.add_argument("--peers", type=split, default=["ort-fp32", "st-fp32"], metavar="NAME,…", help="of ort-fp32, ort-int8, st-fp32, st-bf16")
    ap.add_argument("--only", type=split, default=["E1", "E2", "E3", "E4"], metavar="E1,…", help="workloads")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--model", type=Path, help=f"a folder to run instead of the catalog's {MODEL} (BERT with mean pooling, for the peers' sake)")
    ap.add_argument("--workloads", type=Path, default=harness.ROOT.parent / "shared/workloads", help="where E1.json and ref_E1.npy lie; texts are made if they do not")
    ap.add_argument("--json", action="store_true", help="one object on stdout instead of the tables")
    args = ap.parse_args()

    ours = build("-p", "lattice-embed", "--example", "embed_worker")
    model = (args.model or catalog_model()).resolve()
    onnx = Path(sys.prefix) / "onnx" / f"{model.name}-{os.stat(model / 'model.safetensors').st_size}"
    head = {
        "machine": harness.machine(), "commit": harness.commit(), "command": shlex.join(["bench/embed/run", *sys.argv[1:]]),
        "model": args.model and str(args.model) or MODEL, "texts": "shared workloads" if (args.workloads / "E1.json").exists() else "made here",
    }
    if not args.json:
        print("\n".join(f"{k}: {v}" for k, v in head.items()))
    rows, facts = [], {}
    for threads in args.threads:
        more, facts[str(threads)] = measure(threads, args, ours, model, onnx)
        rows += more
    if args.json:
        print(json.dumps(head | {"threads": facts, "rows": rows}, indent=1))
    else:
        print("versions:", ", ".join(f"{k} {v}" for k, v in facts[str(args.threads[0])]["versions"].items()))
        show(rows, facts)
    worst = max((r["max_abs_error"] for r in rows if r["who"] == "lattice"), default=0)
    if worst > LIMIT:
        raise SystemExit(f"ours is up to {worst:.1e} from the float32 reference; at most {LIMIT:.0e} is promised")
    for threads, f in facts.items():
        if f["peak_mib"]["lattice"] > f["memory_bound_mib"]:
            raise SystemExit(f"ours took {f['peak_mib']['lattice']:.0f} MiB with {threads} threads; at most {f['memory_bound_mib']:.0f} are promised")


if __name__ == "__main__":
    main()

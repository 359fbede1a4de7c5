"""`bench/generate/run`: prompts and decoding with ours and with llama.cpp, in turn, on the same GGUF files: medians,
spread, ratios, time to the first token and peak memory."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

PROMPT = "The capital of France is"
CONTEXT = 2048


def output(command, cores):
    """What a command writes, run on some cores only, and its seconds and peak MiB."""
    start = time.perf_counter()
    process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: os.sched_setaffinity(0, cores))
    # Read to the end before waiting, so that a full pipe holds nobody up; stderr is short.
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))} ended with code {process.returncode}:\n{err[-2000:]}")
    return out, time.perf_counter() - start, usage.ru_maxrss / 1024


def ours_speed(binary, model, threads, test, depth):
    """Tokens a second, and the facts that our bench gives besides."""
    kind, count = test
    args = ["--pp", count if kind == "pp" else 0, "--tg", count if kind == "tg" else 0, "--depth", depth, "--reps", 1, "--threads", threads]
    row = json.loads(output([binary, "bench", "-m", model, *args, "--json"], harness.physical_cores()[:threads])[0])[0]
    return row["tokens_per_second"], row.get("share")


def peer_speed(binary, model, threads, test, depth, flash):
    kind, count = test
    args = ["-p", count if kind == "pp" else 0, "-n", count if kind == "tg" else 0, "-d", depth, "-r", 1, "-t", threads, "-fa", flash]
    row = json.loads(output([binary / "llama-bench", "-m", model, *args, "-o", "json"], harness.physical_cores()[:threads])[0])[0]
    return row["avg_ts"], None


def first_token(ours, llama, model, threads):
    """Contestant -> the command that loads, answers one token and ends."""
    one = [PROMPT, "-n", 1, "--threads", threads]
    return {
        "lattice": [ours, "generate", "-m", model, "-p", *one, "--temperature", 0, "--ctx", CONTEXT, "--quiet"],
        "llama.cpp": [llama / "llama-completion", "-m", model, "-p", *one, "--temp", 0, "-c", CONTEXT, "-no-cnv", "--no-warmup"],
    }


def in_turn(contestants, rounds):
    """name -> the results of all rounds; one round before the first is not counted, and who begins changes."""
    names, results = list(contestants), {name: [] for name in contestants}
    for n in range(-1, rounds):
        for i in range(len(names)):
            name = names[(n + i) % len(names)]
            result = contestants[name]()
            if n >= 0:
                results[name].append(result)
    return results


def measure(args, ours, model, threads):
    """One row a (test, contestant); `value` is tokens a second, milliseconds or MiB."""
    rows = []

    def add(test, unit, values, better, shares=()):
        medians = {name: harness.spread(v)["median"] for name, v in values.items()}
        peers = [m for name, m in medians.items() if name != "lattice"]
        best = better(peers)
        for name, v in values.items():
            ratio = medians[name] / best if better is max else best / medians[name]
            share = harness.spread(shares)["median"] if name == "lattice" and shares else None
            rows.append({"model": Path(model).name, "threads": threads, "test": test, "who": name, "unit": unit,
                         "value": harness.spread(v), "times_best_peer": ratio, "share_of_bandwidth": share})

    tests = [(("pp", n), 0) for n in args.pp] + [(("tg", args.tg), depth) for depth in args.depth]
    for test, depth in tests:
        contestants = {"lattice": lambda: ours_speed(ours, model, threads, test, depth)}
        contestants["llama.cpp"] = lambda: peer_speed(args.llama, model, threads, test, depth, "auto")
        if depth:
            contestants["llama.cpp, no flash attention"] = lambda: peer_speed(args.llama, model, threads, test, depth, "off")
        name = f"{test[0]}{test[1]}" + (f" at {depth}" if depth else "")
        print(f"{Path(model).name}, {threads} threads: {name} …", file=sys.stderr)
        results = in_turn(contestants, args.rounds)
        shares = [share for _, share in results["lattice"] if share]
        add(name, "tokens/s", {who: [speed for speed, _ in r] for who, r in results.items()}, max, shares)

    cores = harness.physical_cores()[:threads]
    commands = first_token(ours, args.llama, model, threads)
    results = in_turn({who: lambda command=command: output(command, cores)[1:] for who, command in commands.items()}, args.rounds)
    add("start to first token", "ms", {who: [s * 1e3 for s, _ in r] for who, r in results.items()}, min)
    add("peak memory then", "MiB", {who: [m for _, m in r] for who, r in results.items()}, min)
    return rows


def show(rows):
    """The rows of one model and number of threads."""
    print(f"\n{rows[0]['model']}, {rows[0]['threads']} thread{'s' if rows[0]['threads'] > 1 else ''}")
    cells = [[f"{r['test']} {r['who']}", f"{r['value']['median']:.1f} {r['unit']}", f"{r['value']['min']:.1f}–{r['value']['max']:.1f}",
              f"{r['times_best_peer']:.2f}", f"{r['share_of_bandwidth']:.0%}" if r["share_of_bandwidth"] else ""] for r in rows]
    print(harness.table(["", "median", "min–max", "× best peer", "of bandwidth"], cells), flush=True)


def main():
    ap = argparse.ArgumentParser(prog="bench/generate/run", description=__doc__)
    numbers = lambda s: [int(x) for x in s.split(",") if x]
    ap.add_argument("--llama", type=Path, required=True, help=argparse.SUPPRESS)
    ap.add_argument("--threads", type=numbers, default=[2, 1], metavar="N,…")
    ap.add_argument("--model", type=lambda s: s.split(","), default=["smollm2-135m-instruct", "gemma-3-270m"], metavar="M,…", help="catalog names or GGUF files")
    ap.add_argument("--pp", type=numbers, default=[64, 512], metavar="N,…", help="lengths of prompts")
    ap.add_argument("--tg", type=int, default=128, metavar="N", help="tokens to decode")
    ap.add_argument("--depth", type=numbers, default=[0, 2048], metavar="N,…", help="tokens in the caches before decoding")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--json", action="store_true", help="one object on stdout instead of the tables")
    args = ap.parse_args()

    ours = harness.build()
    models = [harness.gguf(ours, model) for model in args.model]
    head = {"machine": harness.machine(), "commit": harness.commit(), "command": shlex.join(["bench/generate/run", *sys.argv[3:]]), "llama.cpp": harness.llama_version(args.llama)}
    if not args.json:
        print("\n".join(f"{k}: {v}" for k, v in head.items()))
    rows = []
    for model in models:
        for threads in args.threads:
            new = measure(args, ours, model, threads)
            rows += new
            if not args.json:
                show(new)
    if args.json:
        print(json.dumps(head | {"rows": rows}, indent=1))


if __name__ == "__main__":
    main()

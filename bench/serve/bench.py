"""`bench/serve/run`: many streams at once, `lattice serve` against `llama-server`, in turn, on the same GGUF file, with the
same number of places and threads: tokens a second, time to the first token, pauses, memory, a shared prefix."""

import argparse
import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
import load
import soak

SHORT, LONG, OUT = 29, 220, 64
# Name -> clients at once, lengths of prompts, requests for each client.
LOADS = {
    "short8": (8, (SHORT,), 3),
    "long8": (8, (LONG,), 2),
    "mixed32": (32, (SHORT, LONG), 2),
    "mixed128": (128, (SHORT, LONG), 1),
}
PREFIX, QUESTION = 2000, 20


class Server:
    """A server that is ready, on some cores only."""

    def __init__(self, name, command, port, cores):
        self.name = name
        self.log = open(f"/tmp/bench-serve-{os.getpid()}-{name}.log", "w+")
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.port = port or int(self.process.stdout.readline().rsplit(":", 1)[1])
        end = time.monotonic() + 120
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                raise SystemExit(f"{name} does not get ready: {self.log.read()[-2000:]}")
            time.sleep(0.1)

    def _ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health") as answer:
                return answer.status == 200
        except OSError:
            return False

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def rss(self):
        return load.Watch(self.process.pid).now()

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        os.unlink(self.log.name)


def ours(binary, model, args, cores):
    more = ["--max-queue", 1024, "--quiet"]
    command = [binary, "serve", "--model", model, "--port", 0, "--parallel", args.parallel, "--ctx", args.ctx, "--threads", args.threads, *more]
    return Server("lattice", command, None, cores)


def peer(llama, model, args, cores):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = args.ctx * args.parallel
    more = ["--threads", args.threads, "--threads-batch", args.threads, "--flash-attn", "auto", "--no-ui", "--offline"]
    command = [llama / "llama-server", "-m", model, "--port", port, "--parallel", args.parallel, "-c", context, *more]
    # It writes nothing on stdout that anybody reads.
    return Server("llama-server", command, port, cores)


def ids(server, rng, count):
    """So many tokens of a text that nobody has seen."""
    return server.post("/tokenize", {"content": load.text(rng, count)})["tokens"][:count]


def measure(name, servers, sampling, rounds):
    """Contestant -> the summaries of all rounds; one short round before them is not counted."""
    clients, lengths, each = LOADS[name]
    results = {s.name: [] for s in servers}
    for n in range(-1, rounds):
        for i in range(len(servers)):
            server = servers[(n + i) % len(servers)]
            rng = load.rng(name, n, server.name)
            count = clients * each if n >= 0 else 8
            jobs = [load.Job(ids(servers[0], rng, lengths[k % len(lengths)]), OUT) for k in range(count)]
            time.sleep(0.2)
            watch = load.Watch(server.process.pid)
            answers = load.summary(*asyncio.run(load.drive(server.port, jobs, clients, sampling, watch)))
            if n >= 0:
                memory = [mib for _, mib in watch.samples]
                results[server.name].append(answers | {"memory": [memory[0], max(memory), memory[-1]]})
    return results


def prefix(servers, sampling, rounds):
    """Contestant -> (seconds to the first token of the first request, of the second), for prompts that begin alike."""
    results = {s.name: [] for s in servers}
    for n in range(rounds):
        for i in range(len(servers)):
            server = servers[(n + i) % len(servers)]
            rng = load.rng("prefix", n, server.name)
            beginning, times = ids(servers[0], rng, PREFIX), []
            for _ in range(2):
                job = load.Job(beginning + ids(servers[0], rng, QUESTION), 4)
                (answer,), _, _ = asyncio.run(load.drive(server.port, [job], 1, sampling))
                if answer.status != 200:
                    raise SystemExit(f"{server.name}: {answer.error}")
                times.append(answer.first)
            results[server.name].append(times)
    return results


def show(name, results):
    """The table of one load."""
    clients, lengths, each = LOADS[name]
    middle = lambda rounds, key: load.median([r[key] for r in rounds])
    rate = {who: middle(rounds, "tokens_per_second") for who, rounds in results.items()}
    print(f"\n{name}: {clients} clients, prompts of {' and '.join(map(str, lengths))} tokens, {OUT} tokens out, {each} requests each")
    rows = []
    for who, rounds in results.items():
        rates = [r["tokens_per_second"] for r in rounds]
        statuses = {}
        for r in rounds:
            for status, count in r["statuses"].items():
                statuses[status] = statuses.get(status, 0) + count
        memory = [load.median([r["memory"][i] for r in rounds]) for i in range(3)]
        ms = [f"{middle(rounds, key) * 1e3:.0f}" for key in ("first_p50", "first_p99", "pause_p99", "wait_p99")]
        rows.append([who, f"{rate[who]:.0f}", f"{min(rates):.0f}–{max(rates):.0f}", *ms, " ".join(f"{c}×{s}" for s, c in sorted(statuses.items())),
                     "/".join(f"{m:.0f}" for m in memory), f"{middle(rounds, 'load_share'):.0%}"])
    header = ["", "tokens/s", "min–max", "first p50 ms", "p99", "pause p99", "whole p99", "answers", "MiB begin/most/end", "load's core"]
    print(harness.table(header, rows))
    if len(results) > 1:
        us, them = results["lattice"], results["llama-server"]
        print(f"times llama-server: {rate['lattice'] / rate['llama-server']:.2f} tokens/s, {middle(us, 'first_p50') / middle(them, 'first_p50'):.2f} first token p50,"
              f" {middle(us, 'first_p99') / middle(them, 'first_p99'):.2f} p99")
    for who, rounds in results.items():
        wrong = sorted({e for r in rounds for e in r["errors"]})
        short = sum(r["short_of_tokens"] for r in rounds)
        if wrong or short:
            print(f"{who}: {short} answers short of tokens; {wrong}")
    sys.stdout.flush()


def show_prefix(results):
    print(f"\nprefix: two prompts of {PREFIX + QUESTION} tokens whose first {PREFIX} are the same, one after another; ms to the first token")
    rows = []
    for who, times in results.items():
        first, second = (load.median([t[i] for t in times]) * 1e3 for i in range(2))
        rows.append([who, f"{first:.0f}", f"{second:.1f}", f"{load.median([a / b for a, b in times]):.1f}"])
    print(harness.table(["", "first", "second", "× shorter"], rows), flush=True)


def main():
    ap = argparse.ArgumentParser(prog="bench/serve/run", description=__doc__)
    ap.add_argument("--llama", help=argparse.SUPPRESS)
    ap.add_argument("--model", default="smollm2-135m-instruct", metavar="M", help="a catalog name or a GGUF file")
    ap.add_argument("--lattice", type=Path, metavar="FILE", help="a built command; without it, this clone's is built")
    ap.add_argument("--loads", type=lambda s: s.split(","), default=[*LOADS, "prefix"], metavar="L,…", help=", ".join([*LOADS, "prefix"]))
    ap.add_argument("--threads", type=int, default=2, metavar="N")
    ap.add_argument("--parallel", type=int, default=8, metavar="N", help="streams that run side by side; the others wait")
    ap.add_argument("--ctx", type=int, default=2560, metavar="N", help="longest text of a stream")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--greedy", action="store_true", help="temperature 0; otherwise 0.8 with top_k 40 and top_p 0.95, so that nothing is guessed")
    ap.add_argument("--alone", action="store_true", help="ours only")
    ap.add_argument("--soak", type=float, metavar="MINUTES", help="ours only, for so long: every kind of request, clients that leave, wrong ones; memory must stay flat")
    ap.add_argument("--clients", type=int, default=4, metavar="N", help="clients of the soak")
    ap.add_argument("--json", action="store_true", help="one object on stdout instead of the tables")
    args = ap.parse_args()
    if unknown := set(args.loads) - {*LOADS, "prefix"}:
        ap.error(f"no such loads: {', '.join(unknown)}")

    binary = args.lattice or harness.build()
    model, cores = harness.gguf(binary, args.model), harness.physical_cores()[:args.threads]
    rest = sys.argv[3:] if len(sys.argv) > 1 and sys.argv[1] == "--llama" else sys.argv[1:]
    head = {"machine": harness.machine(), "commit": harness.commit(), "command": shlex.join(["bench/serve/run", *rest])}
    sampling = {"temperature": 0} if args.greedy else {"temperature": 0.8, "top_k": 40, "top_p": 0.95}
    servers, results = [], {}
    # Whoever stops it stops the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        servers.append(ours(binary, model, args, cores))
        if args.soak:
            print("\n".join(f"{k}: {v}" for k, v in head.items()), flush=True)
            return soak.run(servers[0], args.soak, args.clients)
        if not args.alone:
            head["llama.cpp"] = harness.llama_version(Path(args.llama))
            servers.append(peer(Path(args.llama), model, args, cores))
        if not args.json:
            print("\n".join(f"{k}: {v}" for k, v in head.items()))
            print("MiB when ready: " + ", ".join(f"{s.name} {s.rss():.0f}" for s in servers), flush=True)
        for name in args.loads:
            if name == "prefix":
                results[name] = prefix(servers, sampling, args.rounds)
            else:
                results[name] = measure(name, servers, sampling, args.rounds)
            if not args.json:
                show_prefix(results[name]) if name == "prefix" else show(name, results[name])
    finally:
        for server in servers:
            server.close()
    if args.json:
        print(json.dumps(head | {"loads": results}, indent=1))


if __name__ == "__main__":
    main()

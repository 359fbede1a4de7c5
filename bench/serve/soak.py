"""The soak: every kind of request at once for a long time, clients that leave and requests that are wrong among them. It
fails if anything but 200, 400 and 429 is answered, if somebody is not served, or if memory grows."""

import asyncio
import time
import urllib.request

import load

# What clients do, and how often.
KINDS = {
    "short, streamed": 4,
    "long, streamed": 2,
    "short, whole": 3,
    "begins like others": 3,
    "held to a grammar": 2,
    "leaves": 3,
    "leaves before the first token": 1,
    "wrong": 2,
}
GRAMMAR = 'root ::= "{\\"city\\": \\"" [a-z]{3,12} "\\", \\"days\\": " [1-9] "}"'


def jobs(until):
    """Requests without end, until the time has come."""
    rng = load.rng("soak")
    beginning = load.text(rng, 300)
    kinds, weights = list(KINDS), list(KINDS.values())
    while time.monotonic() < until:
        kind = rng.choices(kinds, weights)[0]
        prompt = load.text(rng, rng.randint(5, 40))
        tokens = rng.randint(1, 64)
        match kind:
            case "long, streamed":
                yield load.Job(load.text(rng, rng.randint(200, 900)), tokens, kind=kind)
            case "short, whole":
                yield load.Job(prompt, tokens, stream=False, kind=kind)
            case "begins like others":
                yield load.Job(f"{beginning} {prompt}", tokens, kind=kind, fields={"temperature": 0})
            case "held to a grammar":
                yield load.Job(prompt, 64, kind=kind, fields={"grammar": GRAMMAR, "ignore_eos": False})
            case "leaves":
                yield load.Job(prompt, 500, kind=kind, leaves=rng.randint(1, 10))
            case "leaves before the first token":
                yield load.Job(load.text(rng, 900), 500, kind=kind, leaves=0)
            case "wrong":
                wrong = rng.choice([{"temperature": -1}, {"frobnicate": 1}, {"prompt": [10**9]}, {"grammar": "root ::= nothing"}, {"model": "gpt-9"}])
                yield load.Job(prompt, tokens, kind=kind, fields=wrong)
            case _:
                yield load.Job(prompt, tokens, kind=kind)


def run(server, minutes, clients):
    """Soaks a server; ends the process with status 1 if it does not stand it."""
    watch = load.Watch(server.process.pid, period=5)
    until = time.monotonic() + minutes * 60
    answers, wall, share = asyncio.run(load.drive(server.port, jobs(until), clients, {}, watch))
    faults, counts = [], {}
    for a in answers:
        key = (a.job.kind, a.status)
        counts[key] = counts.get(key, 0) + 1
        right = (400, 404) if a.job.kind == "wrong" else (200, 429)
        if a.status not in right and not (a.job.leaves is not None and a.status == 0):
            faults.append(f"{a.job.kind}: {a.status} {a.error}")
    print(f"{wall:.0f} s, {clients} clients, {len(answers)} requests, load's share of a core {share:.0%}")
    for (kind, status), count in sorted(counts.items()):
        print(f"  {kind}: {count} × {status or 'left'}")
    served = [a for a in answers if a.status == 200]
    firsts = [a.first for a in served if a.first is not None]
    print(f"first token p50 {load.percentile(firsts, 50) * 1e3:.0f} ms, p99 {load.percentile(firsts, 99) * 1e3:.0f} ms, longest {max(firsts) * 1e3:.0f} ms")
    idle = time.monotonic() + 10
    while (left := metric(server, "lattice_sequences_running") + metric(server, "lattice_sequences_waiting")) and time.monotonic() < idle:
        time.sleep(0.1)
    if left:
        faults.append(f"{left:.0f} sequences are left over")
    if pages := metric(server, "lattice_pages_used"):
        faults.append(f"{pages:.0f} pages are still held")
    # The first fifth fills caches.
    memory = [mib for at, mib in watch.samples if at >= wall / 5]
    half = len(memory) // 2
    before, after = load.median(memory[:half]), load.median(memory[half:])
    step = max(1, len(watch.samples) // 12)
    print("resident MiB: " + ", ".join(f"{mib:.0f} at {at:.0f} s" for at, mib in watch.samples[::step]))
    print(f"after the first fifth: median {before:.1f} MiB in the first half, {after:.1f} in the second, most {max(memory):.1f}")
    if after > before * 1.02 + 2:
        faults.append(f"memory grew from {before:.1f} to {after:.1f} MiB")
    if faults:
        raise SystemExit("\n".join(["FAILED", *faults[:20]]))
    print("nothing failed, nothing is left over, memory is flat")


def metric(server, name):
    """The sum of a metric of ours."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

"""Measures programs against each other fairly: every contestant is a persistent process that has loaded its model once
and does one piece of work when asked, and the requests go round among them, so that whatever the machine does
meanwhile meets them all. Knows nothing about what the work is.

The protocol: one JSON object a line. A worker writes `{"ready": NAME, ...facts}` when it has loaded, then answers each
request line with one line: its result, or `{"error": "..."}`. It ends when its input does.
"""

import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Worker:
    """A contestant: its process, and what it said of itself when it was ready."""

    def __init__(self, name, command, threads):
        env = os.environ | {k: str(threads) for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")}
        cores = physical_cores()[:threads]
        self.name = name
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.facts = self._answer()

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with code {self.process.wait()}; its messages stand above")
        answer = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"{self.name}: {answer['error']}")
        return answer

    def peak_mib(self):
        """The most memory that the process has had resident."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def alternate(workers, request, rounds, pause=0.2):
    """worker name -> the `seconds` of all rounds. One unmeasured round first. The pause lets the thread pool of the one
    before go to sleep; who begins changes from round to round."""
    seconds = {w.name: [] for w in workers}
    for n in range(-1, rounds):
        for i in range(len(workers)):
            w = workers[(n + i) % len(workers)]
            time.sleep(pause)
            answer = w.ask(**request)
            if n >= 0:
                seconds[w.name] += answer["seconds"]
    return seconds


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def build():
    """Builds ours in release; its path."""
    args = ["cargo", "build", "--release", "-p", "lattice", "--message-format=json-render-diagnostics"]
    out = subprocess.run(args, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if out.returncode:
        raise SystemExit("the build failed")
    return next(m["executable"] for m in map(json.loads, out.stdout.splitlines()) if m.get("executable"))


def gguf(ours, model):
    """The file of a catalog model (fetched if it is not there) or of a path."""
    if not Path(model).exists():
        out = subprocess.run([ours, "pull", model, "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
        model = json.loads(out)[0]["path"]
    path = Path(model)
    files = [path] if path.is_file() else sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise SystemExit(f"{path} holds {len(files)} GGUF files, expected one: give its path")
    return files[0]


def llama_version(llama):
    """What llama.cpp says of itself."""
    out = subprocess.run([llama / "llama-bench", "--version"], capture_output=True, text=True)
    return next((line for line in (out.stdout + out.stderr).splitlines() if "version" in line), "unknown")


def physical_cores():
    """One of the allowed logical CPUs for each physical core."""
    seen, chosen = set(), []
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        key = siblings.read_text().strip() if siblings.exists() else str(cpu)
        if key not in seen:
            seen.add(key)
            chosen.append(cpu)
    return chosen


def machine():
    """What a figure depends on, in words."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    field = lambda name: next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith(name)), "")
    flags = set(field("flags").split())
    isa = [f for f in ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8") if f in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{field('model name') or platform.processor() or platform.machine()}, {len(physical_cores())} cores ({' '.join(isa)}), {memory:.0f} GiB"


def commit():
    """The checked-out commit, with a mark where files differ from it."""
    git = lambda *args: subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short=12", "HEAD") + (" and uncommitted changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def table(header, rows):
    """Columns as wide as what is in them; the first is text, the others numbers."""
    rows = [[str(c) for c in r] for r in [header, *rows]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))) for r in rows)

"""Many clients of one completion API at once, and what each of them sees: when text comes, and how its request ends.

Only the standard library: a stream costs some ten microseconds an event, so that one process of Python loads a server of
thousands of tokens a second. How much of a core it took is measured with everything else.
"""

import asyncio
import json
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

# Words of which prompts are made: each request's is another one, so that nothing of it was computed before.
WORDS = """the of and to in a is was for on as with by he that at from his it an were are which this be had first one their has
its new after who they two her she been other when there all during into school time may years more most only over city some
world would where later up such used many can state about national out known university united then made also under war
family film music game river house water north south early small large light station bridge garden morning evening road train
letter window story king island forest market winter summer church theatre doctor captain village mountain silver stone
voice paper number second third common public history science language machine question answer measure pressure
engine""".split()


def text(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


@dataclass
class Job:
    """A request: ids or a text, and how much is to be said."""

    prompt: list | str
    tokens: int = 64
    stream: bool = True
    kind: str = ""
    # Leaves after so many pieces.
    leaves: int | None = None
    # Fields that go over the usual ones.
    fields: dict = field(default_factory=dict)


@dataclass
class Answer:
    """How a request went; times in seconds."""

    job: Job
    status: int
    first: float | None = None
    # Longest time without a piece after the first one.
    pause: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    error: str = ""


async def complete(port, job, sampling):
    """Sends one request and hears it to its end."""
    body = {"prompt": job.prompt, "max_tokens": job.tokens, "ignore_eos": True, **sampling, **job.fields}
    if job.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    start = time.perf_counter()
    answer, writer = Answer(job, 0), None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + data)
        answer.status = int((await reader.readline()).split()[1])
        chunked = False
        while (line := await reader.readline()).strip():
            chunked |= line.lower().startswith(b"transfer-encoding: chunked")
        if chunked and answer.status == 200:
            await _events(reader, answer, start)
        else:
            whole = await reader.read()
            try:
                whole = json.loads(whole)
                answer.tokens = whole["usage"]["completion_tokens"] if answer.status == 200 else 0
                answer.error = "" if answer.status == 200 else str(whole)
            except (ValueError, KeyError) as error:
                answer.status, answer.error = 0, f"{error}: {whole!r:.200}"
    except (OSError, EOFError, IndexError, ValueError) as error:
        answer.status, answer.error = 0, f"{type(error).__name__}: {error}"
    finally:
        if writer:
            writer.close()
    answer.seconds = time.perf_counter() - start
    return answer


async def _events(reader, answer, start):
    """Reads a stream of events; what it says of its tokens stands in its last chunk."""
    held, last, pieces, usage, done = b"", None, 0, None, False
    while True:
        size = int(await reader.readline(), 16)
        chunk = (await reader.readexactly(size + 2))[:size]
        if not size:
            break
        now = time.perf_counter()
        held += chunk
        *lines, held = held.split(b"\n")
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                done = True
            elif line.startswith(b'data: {"error"') or line.startswith(b"error:"):
                answer.error = line[:300].decode()
            elif line.startswith(b"data: "):
                if b'"completion_tokens"' in line:
                    usage = json.loads(line[6:]).get("usage") or usage
                if b'"text":""' not in line and b'"choices":[]' not in line:
                    pieces += 1
                    if last is None:
                        answer.first = now - start
                    else:
                        answer.pause = max(answer.pause, now - last)
                    last = now
        if answer.job.leaves is not None and pieces >= answer.job.leaves:
            return
    answer.tokens = usage["completion_tokens"] if usage else 0
    if not done or not usage:
        answer.status, answer.error = 0, answer.error or "the stream broke off"


@dataclass
class Watch:
    """The resident MiB of a process, sampled while something runs."""

    pid: int
    period: float = 0.5
    samples: list = field(default_factory=list)

    def now(self):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    async def run(self):
        start = time.perf_counter()
        while True:
            self.samples.append((time.perf_counter() - start, self.now()))
            await asyncio.sleep(self.period)


async def drive(port, jobs, clients, sampling, watch=None):
    """`clients` at once take jobs (an iterator) until there are none left; the answers, the wall time, and our share of a core."""
    jobs, answers = iter(jobs), []

    async def client():
        for job in jobs:
            answers.append(await complete(port, job, sampling))

    watching = asyncio.create_task(watch.run()) if watch else None
    start, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    wall, processor = time.perf_counter() - start, time.process_time() - processor
    if watching:
        watching.cancel()
    return answers, wall, processor / wall


def percentile(values, share):
    """The smallest value that so large a share of them does not exceed."""
    values = sorted(values)
    return values[max(0, -(-len(values) * share // 100) - 1)] if values else float("nan")


def summary(answers, wall, share):
    """What a load says of a server."""
    good = [a for a in answers if a.status == 200]
    firsts = [a.first for a in good if a.first is not None]
    statuses = {}
    for a in answers:
        statuses[str(a.status)] = statuses.get(str(a.status), 0) + 1
    return {
        "tokens_per_second": sum(a.tokens for a in good) / wall,
        "first_p50": percentile(firsts, 50),
        "first_p99": percentile(firsts, 99),
        "pause_p99": percentile([a.pause for a in good if a.job.stream], 99),
        "wait_p99": percentile([a.seconds for a in good], 99),
        "statuses": statuses,
        "errors": sorted({a.error for a in answers if a.error})[:5],
        "short_of_tokens": sum(a.tokens != a.job.tokens for a in good if a.job.leaves is None),
        "load_share": share,
    }


def median(values):
    return statistics.median(values)


def rng(*seed):
    return random.Random(repr(seed))

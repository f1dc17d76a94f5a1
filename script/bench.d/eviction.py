"""Commit to eviction: how long after a commit was acknowledged a reader through Freshet still sees the old value.

A reader, in a process of its own, asks for one cached row as fast as it can; a writer changes that row directly on the
database. Both read the same monotonic clock. The figure of a sample is the time at which the first answer with the new
value arrived, minus the time at which the writer had its acknowledgement: negative where the reader saw the commit
before the writer knew of it. It includes the miss that fetches the new value. The last answer with the old value gives a
second figure: how long the old value was served after the acknowledgement (none where it never was).
"""

import os
import pickle
import random
import time

from wire import Client

SAMPLE_TIMEOUT_S = 5.0


def _reader(port, row, last_value, pipe):
    """Writes [(value, when first asked with this answer, when last asked, when it first arrived)] to the pipe."""
    client = Client(port)
    text = f"SELECT v FROM watched WHERE id = {row}"
    seen, reads = [], 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        asked = time.monotonic_ns()
        value = int(client.query(text))
        arrived = time.monotonic_ns()
        reads += 1
        if not seen or seen[-1]["value"] != value:
            seen.append({"value": value, "arrived": arrived, "asked_last": asked})
        seen[-1]["asked_last"] = asked
        if value == last_value:
            break
    with os.fdopen(pipe, "wb") as out:
        pickle.dump((seen, reads), out)


def measure(database_port, freshet_port, count, row=7):
    """Samples in microseconds: (first new answer − acknowledgement, last old question − acknowledgement)."""
    writer = Client(database_port)
    first = int(writer.query(f"SELECT v FROM watched WHERE id = {row}"))
    result, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(result)
            _reader(freshet_port, row, first + count, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(pipe)
    rng = random.Random(1)
    acknowledged = {}
    time.sleep(0.3)
    for value in range(first + 1, first + count + 1):
        writer.query(f"UPDATE watched SET v = {value} WHERE id = {row}")
        acknowledged[value] = time.monotonic_ns()
        time.sleep(rng.uniform(0.004, 0.012))
    writer.close()
    with os.fdopen(result, "rb") as source:
        seen, reads = pickle.load(source)
    os.waitpid(child, 0)
    return _samples(seen, acknowledged, first), reads


def _samples(seen, acknowledged, first):
    arrived = {entry["value"]: entry["arrived"] for entry in seen}
    asked_last = {entry["value"]: entry["asked_last"] for entry in seen}
    samples = []
    for value, acknowledgement in acknowledged.items():
        if value in arrived:
            old = asked_last.get(value - 1)
            samples.append({
                "new_us": (arrived[value] - acknowledgement) / 1000,
                "old_us": None if old is None else (old - acknowledgement) / 1000,
            })
    backwards = sum(after["value"] < before["value"] for before, after in zip(seen, seen[1:]))
    return {"samples": samples, "unseen": len(acknowledged) - len(samples), "went_back": backwards, "first": first}

"""The load: pgbench, a program that nobody here wrote, run for one round against one port."""

import glob
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from servers import POSTGRES_BIN

HOT_ROWS = 10_000
POINT = "SELECT c FROM sbtest1 WHERE id = :id"
# now() keeps a statement out of every cache; the rest is the point select.
NEVER_CACHED = "SELECT c FROM sbtest1 WHERE id = :id AND now() IS NOT NULL"
HUNDRED_ROWS = "SELECT id, pad FROM sbtest1 WHERE id BETWEEN :id AND :id + 99 AND now() IS NOT NULL"
UPDATE = "UPDATE account SET v = v + 1 WHERE id = :id"
# Timing each transaction costs the load program time on the same cores: one in twenty gives p95 well enough.
SAMPLING_RATE = 0.05


@dataclass
class Outcome:
    """What the load program saw in one round."""

    transactions: int
    seconds: float
    average_ms: float
    samples_ms: list  # pgbench: latencies of a sample of the transactions
    p95_ms: float | None = None  # sysbench: its own figure


class LoadFailed(Exception):
    """The load program ended with an error, or some of its transactions did."""


def _number(pattern, text):
    match = re.search(pattern, text)
    if not match:
        raise LoadFailed(f"cannot read the load program's output ({pattern}):\n{text[-2000:]}")
    return float(match.group(1))


def _run(command, directory, seconds):
    done = subprocess.run(
        command, cwd=directory, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds + 60
    )
    if done.returncode != 0:
        raise LoadFailed(f"{' '.join(map(str, command))}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return done.stdout


class Pgbench:
    """Custom scripts. `protocol` is simple (text), extended (parsed each time) or prepared; each workload has the statements of one transaction."""

    name = "pgbench"
    protocols = {"text": "simple", "extended": "extended", "prepared": "prepared"}

    def __init__(self, directory):
        self.directory = Path(directory)
        self.binary = POSTGRES_BIN / "pgbench"

    def _script(self, name, lines):
        path = self.directory / f"{name}.pgbench"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def script(self, workload, protocol):
        """(script, statements per transaction) of one workload."""
        lines = {
            "point": [f"\\set id random(1, {HOT_ROWS})", POINT + ";"],
            "never-cached": [f"\\set id random(1, {HOT_ROWS})", NEVER_CACHED + ";"],
            "hundred-rows": [f"\\set id random(1, {HOT_ROWS - 99})", HUNDRED_ROWS + ";"],
            "update": [f"\\set id random(1, {HOT_ROWS})", UPDATE + ";"],
            "transaction": [
                f"\\set id random(1, {HOT_ROWS})", "BEGIN;", "SELECT v FROM account WHERE id = :id;", UPDATE + ";",
                "COMMIT;",
            ],
            # :base moves on from round to round, so that no key is asked for twice.
            "miss": [
                "\\set n :n + 1",
                "\\set id :base + :n * :clients + :client_id",
                "SELECT v FROM once WHERE id = :id;",
            ],
            "miss-uncached": [
                "\\set n :n + 1",
                "\\set id :base + :n * :clients + :client_id",
                "SELECT v FROM once WHERE id = :id AND now() IS NOT NULL;",
            ],
        }[workload]
        return self._script(f"{workload}-{protocol}", lines), sum(line.endswith(";") for line in lines)

    def _command(self, port, workload, protocol, clients):
        path, _ = self.script(workload, protocol)
        command = [self.binary, "-n", "-M", self.protocols[protocol], "-f", path, "-c", str(clients)]
        return [*command, "-j", str(min(clients, 2)), "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"]

    def round(self, port, workload, protocol, clients, seconds, base=0, each=None):
        """One round of `seconds`, or of `each` transactions per client where the keys must be known beforehand."""
        for old in glob.glob(str(self.directory / "latency.*")):
            os.unlink(old)
        command = self._command(port, workload, protocol, clients) + ["-l"]
        command += ["-t", str(each)] if each else ["-T", str(seconds)]
        command += ["--log-prefix=latency", f"--sampling-rate={SAMPLING_RATE}"]
        command += ["-D", "n=0", "-D", f"base={base}", "-D", f"clients={clients}", "postgres"]
        text = _run(command, self.directory, seconds)
        transactions = int(_number(r"transactions actually processed: (\d+)", text))
        failed = int(_number(r"number of failed transactions: (\d+)", text))
        if failed:
            raise LoadFailed(f"{failed} transactions failed")
        rate = _number(r"tps = ([\d.]+)", text)
        samples = []
        for name in glob.glob(str(self.directory / "latency.*")):
            with open(name) as file:
                samples.extend(int(line.split()[2]) / 1000 for line in file)
        average = _number(r"latency average = ([\d.]+)", text)
        return Outcome(transactions, transactions / rate, average, samples)

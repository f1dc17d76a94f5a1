"""Row changes at a fixed rate, and what the database, its walsender and Freshet's own connections do meanwhile."""

import contextlib
import json
import subprocess
import time
from dataclasses import dataclass

import figures
from load import HOT_ROWS, LoadFailed, Pgbench
from wire import Client

WRITERS = 8
SETTLE_SECONDS = 0.5
# pg_stat_statements counts each statement when it ends, and not when its backend finds time to tell.
QUESTION = """
SELECT json_build_object(
    'wal', pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'),
    'xid', pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    'senders', (SELECT coalesce(json_agg(pid), '[]') FROM pg_stat_replication),
    'services', (SELECT coalesce(json_agg(pid), '[]') FROM pg_stat_activity
                 WHERE application_name = 'freshet' AND backend_type = 'client backend'),
    'sessions', (SELECT sessions FROM pg_stat_database WHERE datname = current_database()),
    'statements', (SELECT json_object_agg(query, json_build_array(calls, rows, ms))
                   FROM (SELECT query, sum(calls) AS calls, sum(rows) AS rows,
                                sum(total_plan_time + total_exec_time) AS ms
                         FROM pg_stat_statements GROUP BY query) AS counted))
"""


@dataclass(frozen=True)
class Shape:
    """So many transactions a second, each of which changes so many rows of a table of 10,000."""

    transactions: int = 0
    rows: int = 1
    identity: str = "DEFAULT"

    @property
    def table(self):
        return {"DEFAULT": "sbtest1", "FULL": "sbtest2"}[self.identity]

    @property
    def title(self):
        if not self.transactions:
            return "0"
        return f"{self.transactions * self.rows:,} ({self.transactions:,} × {self.rows})"


class Changes(Pgbench):
    """Pgbench with the scripts of the shapes, named table-rows."""

    def script(self, workload, protocol):
        table, _, rows = workload.partition("-")
        if not table.startswith("sbtest"):
            return super().script(workload, protocol)
        update = f"UPDATE {table} SET k = k + 1 WHERE id BETWEEN :id AND :id + {int(rows) - 1};"
        return self._script(workload, [f"\\set id random(1, {HOT_ROWS - int(rows) + 1})", update]), 1

    @contextlib.contextmanager
    def changing(self, port, shape):
        """Changes rows at the shape's rate meanwhile; gives the pid of the writer, if there is one."""
        if not shape.transactions:
            yield None
            return
        command = self._command(port, f"{shape.table}-{shape.rows}", "prepared", WRITERS)
        command += ["-R", str(shape.transactions), "-T", "600", "postgres"]
        writer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.directory)
        try:
            time.sleep(SETTLE_SECONDS)
            yield writer.pid
            if writer.poll() is not None:
                raise LoadFailed(f"the writer ended early: {writer.stderr.read().decode()[-1000:]}")
        finally:
            writer.kill()
            writer.wait()
            writer.stderr.close()


class Meter:
    """Reads what PostgreSQL and Freshet have done so far; `freshet` is None where it does not run."""

    def __init__(self, postgres, freshet):
        self.postgres, self.freshet = postgres, freshet
        self.client = Client(postgres.port)

    def window(self, writer, seconds):
        """What happened during so many seconds, for each of them."""
        before = self._read(writer)
        time.sleep(seconds)
        after = self._read(writer)
        return difference(before, after)

    def _read(self, writer):
        values = json.loads(self.client.query(QUESTION))
        values["at"] = time.monotonic()
        # Their own clocks: a tick of /proc is a hundredth of a second.
        values["clocks"] = {str(pid): clock for pid in values["senders"] + values["services"]
                            if (clock := own_clock(pid)) is not None}
        values["postgres"] = family_clock(self.postgres.pid)
        values["machine"] = figures.machine_busy_us()
        values["load"] = time.process_time() * 1e6 + (figures.clock_us(writer) if writer else 0)
        values["freshet"] = figures.clock_us(self.freshet.pid) if self.freshet else 0
        values["metrics"] = figures.counters(self.freshet.metrics_url) if self.freshet else {}
        return values


def own_clock(pid):
    """None: it has ended."""
    try:
        return figures.clock_us(pid)
    except OSError:
        return None


def family_clock(pid):
    """Microseconds of a process and all that descend from it, those that have ended included."""
    living = sum(own_clock(member) or 0 for member in figures.family(pid))
    return living + sum(int(ticks) for ticks in figures._stat(pid)[13:15]) * figures.TICK_US


def difference(before, after):
    """Rates per second between two readings; processor time in ms per second."""
    seconds = after["at"] - before["at"]

    def rate(name):
        return (after[name] - before[name]) / seconds

    def clocks(name):
        both = [str(pid) for pid in after[name] if str(pid) in before["clocks"] and str(pid) in after["clocks"]]
        return sum(after["clocks"][pid] - before["clocks"][pid] for pid in both) / 1000 / seconds

    def counted(query, column):
        return (after["statements"][query][column] - before["statements"].get(query, [0, 0, 0])[column]) / seconds

    own = [query for query in after["statements"] if query.startswith("UPDATE sbtest")]
    extra = {query: {"calls": counted(query, 0), "ms": counted(query, 2)} for query in after["statements"]
             if query not in own and "pg_stat_statements" not in query}
    transactions = sum(counted(query, 0) for query in own)
    others = rate("machine") - rate("postgres") - rate("freshet") - rate("load")
    found = {
        "changes": sum(counted(query, 1) for query in own), "transactions": transactions,
        "walsender_ms": clocks("senders"), "services_ms": clocks("services"), "freshet_ms": rate("freshet") / 1000,
        "postgres_ms": rate("postgres") / 1000, "wal_bytes": rate("wal"), "xids": rate("xid") - transactions,
        "statements": sum(one["calls"] for one in extra.values()), "sessions": rate("sessions"),
        "nudges": sum(one["calls"] for query, one in extra.items() if "pg_logical_emit_message" in query),
        "others_cores": max(0.0, others / 1e6),
        "by_statement": {query: one for query, one in extra.items() if one["calls"] > 0},
    }
    if after["metrics"]:
        commits = after["metrics"]["freshet_commits_total"] - before["metrics"]["freshet_commits_total"]
        found |= {"commits": commits / seconds, "stream_age_ms": after["metrics"]["freshet_stream_age_seconds"] * 1000}
    return found

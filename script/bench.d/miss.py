"""What a statement costs that finds nothing in the cache: as a fill, and as one that is never cached."""

from measure import say

PROTOCOLS = ("text", "prepared")
PER_SECOND = 1250  # misses of one connection in a second, about
CLIENTS = 16


class FreshKeys:
    """Hands each round keys of `once` that no round through the cache has asked for."""

    def __init__(self, rows):
        self.rows, self.next = rows, 0

    def run(self, pgbench, target, workload, protocol, each):
        outcome = pgbench.round(target.port, workload, protocol, CLIENTS, 60, base=self.next, each=each)
        if target.metrics_url and workload == "miss":
            self.next += (each + 1) * CLIENTS
            if self.next > self.rows:
                say("  more keys were asked for than the table has rows: the later ones were answered empty")
        return outcome


def measure(bench, pgbench, once):
    """Cells for report.miss_cost()."""
    cells, keys = [], FreshKeys(once)
    targets = [bench.postgres, bench.freshet]
    for protocol in PROTOCOLS:
        pgbench.round(bench.freshet.port, "miss", protocol, 2, 1, base=once * 2)  # covers the table
        for workload in ("miss", "miss-uncached"):

            def run(target, each, workload=workload, protocol=protocol):
                return keys.run(pgbench, target, workload, protocol, each or bench.seconds * PER_SECOND)

            cells.append(bench.cell(workload, "pgbench", protocol, CLIENTS, run, targets))
    return cells

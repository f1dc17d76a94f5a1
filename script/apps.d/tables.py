"""The page of docs/benchmarks."""

import report

STATEMENTS_MAX, STATEMENT_MAX = 12, 240
# These are no reads: what is asked is how many of the reads hit.
WRITES = ("not_select", "several_statements")


def hit_ratio(counts):
    reads = counts["hits"] + counts["fills"] + sum(n for name, n in counts["passed"].items() if name not in WRITES)
    return counts["hits"] / reads if reads else 0.0


def markdown(results, options, seconds):
    return "\n".join([_head(options, seconds), _summary(results), *(_application(result) for result in results)])


def _head(options, seconds):
    machine = report.machine()
    return f"""# Applications: measurements

Command: `make apps` (`script/apps`), {seconds / 60:.0f} minutes. Each application has a database server of its own.
Its pages are crawled {options.warm} times to warm up and {options.rounds} times measured, each page direct and then through Freshet.
The database is 1 ms away each way from the application, or from Freshet.
Then content is changed {options.writes} times through Freshet, and the pages that show it are compared with those got direct.

- Machine: {machine['cores']} cores, {machine['processor']}, {machine['memory_gib']} GiB; load average at the end {machine['load_average_at_start']:.1f}
- Hit ratio: of statements that read. Statements that do not (SET, BEGIN, INSERT …) pass as `not_select`
- Statements per page: those that the database gets from the application's sessions, with what Freshet asks on them (the
  settings, the end of the log). Freshet's own connections are left out
- First hit: round trips that a new session waits for on its connection to the database until a read is answered from the cache, less those that
  it needs direct up to that read: for the login, and for what the application's sessions send first. Direct, the read itself costs one. Next hit:
  the same of the read after it. Round trips are counted at the relay, as changes of direction, so that other load does not change the figures
- Redmine's tables without a key have REPLICA IDENTITY FULL, as `freshet check` advises
- Wrong pages: what Freshet gave is neither the page before nor the page after, or does not show a change. Undecided: the page itself changes
"""


def _summary(results):
    header = ["application", "pages", "hits", "hits among writes", "statements/page direct", "through", "page ms direct", "through"]
    header += ["compared", "wrong", "undecided", "first hit, round trips", "next hit"]
    rows = []
    for result in results:
        rows.append([
            result["application"], result["pages"], f"{hit_ratio(result['crawled']):.1%}", f"{hit_ratio(result['written']):.1%}",
            report.number(result["statements"]["direct"], 1), report.number(result["statements"]["through"], 1),
            report.number(result["median_ms"]["direct"], 1), report.number(result["median_ms"]["through"], 1),
            result["compared"], result["wrong"], result["undecided"], report.number(result["first_hit"]["round_trips"], 1),
            report.number(result["first_hit"]["next"], 1),
        ])
    return report.table(header, rows)


def _application(result):
    crawled, pages = result["crawled"], result["pages"] * result["rounds"]
    counts = {"hit": crawled["hits"], "fill": crawled["fills"], **crawled["passed"]}
    rows = [[name, report.number(number / pages, 2)] for name, number in sorted(counts.items(), key=lambda item: -item[1])]
    lines = ["", f"## {result['application']}", "", report.table(["crawl", "statements/page"], rows), ""]
    passed = sorted(result["proxied"], key=lambda row: -int(row[2]))[:STATEMENTS_MAX]
    rows = [[row[2], row[3], _code(row[1]), row[4][:120]] for row in passed]
    lines += ["What passed most often, the warm-up and the writes included:", ""]
    lines += [report.table(["passed", "last reason", "statement", "detail"], rows), ""]
    filled = sorted((row for row in result["caches"] if int(row[3]) > 2 * int(row[4])), key=lambda row: -int(row[3]))[:STATEMENTS_MAX // 2]
    if filled:
        rows = [[row[3], row[2], row[4], _code(row[1])] for row in filled]
        lines += ["What was filled most often beside its entries:", "", report.table(["fills", "hits", "entries", "statement"], rows), ""]
    for path, seen in result["different"]:
        lines.append(f"- Differs: `{path}`: {_code(str(seen))}")
    return "\n".join(lines).rstrip() + "\n"


def _code(text):
    return "`" + " ".join(text.replace("|", "¦").replace("`", "'").split())[:STATEMENT_MAX] + "`"

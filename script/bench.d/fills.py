"""What a result costs that is kept, by the shape of its statement: beside the same query direct, and passing a Freshet whose
cache is switched off. Every execution asks for another key, so that nothing hits, and all tables have been written to, so that
keys of other rows are read where a statement needs them.
"""

import json
import statistics
import time
from pathlib import Path

import figures
import report
import servers
from calibration import run
from measure import say

MOVIES = 8000
CLIENTS = 16

# `:n` is hardly ever the same number twice; rows and conditions are as without it.
SHAPES = {
    "one row by its key": "SELECT :n::bigint, title FROM title WHERE title_id = :id",
    "a list by another column": "SELECT :n::bigint, title_id, tconst FROM title WHERE title = :title",
    "the first ten of an index": "SELECT :n::bigint, title_id FROM title WHERE title_id > :id ORDER BY title_id LIMIT 10",
    "join of two": "SELECT :n::bigint, g.genre FROM title_genre g JOIN title t ON t.title_id = g.title_id "
    "WHERE t.title = :title AND t.type = 'movie'",
    "join of three": "SELECT :n::bigint, n.name, p.category FROM title_principal p JOIN title t ON t.title_id = p.title_id "
    "JOIN name n ON n.name_id = p.name_id WHERE t.title = :title AND t.type = 'movie'",
    "left join": "SELECT :n::bigint, t.title_id, r.num_votes FROM title t LEFT JOIN title_rating r "
    "ON r.title_id = t.title_id WHERE t.title = :title",
    "EXISTS": "SELECT :n::bigint, t.title_id FROM title t WHERE t.title = :title AND EXISTS "
    "(SELECT 1 FROM title_genre g WHERE g.title_id = t.title_id AND g.genre = 'Drama')",
    "IN (SELECT)": "SELECT :n::bigint, r.num_votes FROM title_rating r WHERE r.title_id IN "
    "(SELECT t.title_id FROM title t WHERE t.title = :title)",
    "aggregate of a join": "SELECT :n::bigint, count(*), max(r.num_votes) FROM title t JOIN title_rating r "
    "ON r.title_id = t.title_id WHERE t.title = :title",
}
PARAMETERS = {
    "n": "range = [{first}, {last}]",
    "id": 'query = "SELECT title_id FROM title"',
    "title": """query = "SELECT DISTINCT title FROM title WHERE type = 'movie'\"""",
}
TABLES = {
    "title": "updated = updated", "title_genre": "genre = genre", "title_principal": "job = job", "name": "born = born",
    "title_rating": "num_votes = num_votes",
}


class Bench:
    """Runs a shape against one target at a time."""

    def __init__(self, options, directory, postgres):
        self.options, self.directory, self.postgres, self.first = options, Path(directory), postgres, 0

    def round(self, sql, target, seconds):
        """Figures for each query: µs of PostgreSQL and of Freshet, results kept, queries for keys."""
        used = [f"[params.{name}]\n{text}\n" for name, text in PARAMETERS.items() if f":{name}" in sql]
        self.first += 10**10  # the same random numbers each time, on another range
        text = "".join(used).format(first=self.first, last=self.first + 10**9) + f'[[transactions]]\nstatements = [{{ sql = "{sql}" }}]\n'
        (self.directory / "shape.toml").write_text(text)
        output = self.directory / "fills.json"
        before, counted = self.spent(target), counters(target)
        run([
            self.options.bench, "run", "custom", "--file", self.directory / "shape.toml",
            "--target", f"{target.target.split()[0]}=postgres://postgres@127.0.0.1:{target.port}/postgres",
            "--connections", CLIENTS, "--rounds", 1, "--warm-up", "0s", "--time", f"{seconds}s", "--cool-down", "0s",
            "--protocol", "prepared", "--questions", 0, "--output", output,
        ])
        queries = json.loads(output.read_text())["cells"][0]["rounds"][0]["load"]["queries"]
        spent = [(after - was) / queries for after, was in zip(self.spent(target), before)]
        kept = [(after - was) / queries for after, was in zip(counters(target), counted)]
        return {"postgres_us": spent[0], "freshet_us": spent[1], "kept": kept[0], "keys": kept[1]}

    def spent(self, target):
        own = figures.cpu_us(target.pid) if target.metrics_url else 0
        return figures.cpu_us(self.postgres.pid), own


def counters(target):
    if not target.metrics_url:
        return 0, 0
    values = figures.counters(target.metrics_url)
    return values["freshet_cached_total"], values["freshet_key_queries_total"]


def standing(options, directory, postgres, running):
    """The targets: the database, a Freshet that keeps everything, one whose cache is switched off, and one as it is by default."""
    targets = [postgres]
    for name, keep in [("freshet", "always"), ("passing", "always"), ("default", "worthwhile")]:
        there = Path(directory) / name
        there.mkdir()
        freshet = servers.Freshet(there, options.freshet, postgres, target=name, options=["--admission", keep])
        running.append(freshet)
        freshet.start()
        targets.append(freshet)
    command = [servers.POSTGRES_BIN / "psql", "-X", "-q", "-U", "postgres", "-h", "127.0.0.1", "-p", targets[2].port]
    run([*command, "-c", "FRESHET BYPASS ON", "postgres"])
    return targets


def measure(options, directory, running):
    """Starts a PostgreSQL and two Freshets (added to `running`) and measures everything."""
    machine = report.machine()
    postgres = servers.Postgres(Path(directory))
    running.append(postgres)
    say("bench: starting PostgreSQL and loading the movies")
    postgres.start()
    target = f"direct=postgres://postgres@127.0.0.1:{postgres.port}/postgres"
    run([options.bench, "load", "title-5", "--movies", MOVIES, "--target", target])
    targets = standing(options, directory, postgres, running)
    bench = Bench(options, directory, postgres)
    for sql in SHAPES.values():
        bench.round(sql, targets[1], 1)  # covers the tables
    for table, change in TABLES.items():
        postgres.sql(f"UPDATE {table} SET {change} WHERE ctid = (SELECT min(ctid) FROM {table})")
    cells = []
    for shape, sql in SHAPES.items():
        rounds = {target.target: [] for target in targets}
        for _ in range(options.rounds):
            for target in targets:
                rounds[target.target].append(bench.round(sql, target, options.seconds))
        cells.append({"shape": shape, "sql": sql, "rounds": rounds})
        say(f"  {shape:<26} µs {({name: round(total(median(each))) for name, each in rounds.items()})}")
    versions = report.versions(postgres, options.freshet)
    return {
        "machine": machine, "versions": versions, "rounds": options.rounds, "seconds": options.seconds,
        "postgres_settings": servers.POSTGRES_SETTINGS, "others_cores": None, "date": time.strftime("%Y-%m-%d"),
        "cells": cells,
    }


def median(rounds):
    return {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}


def total(row):
    return row["postgres_us"] + row["freshet_us"]


def markdown(run):
    """The whole report."""
    rows = []
    for cell in run["cells"]:
        names = ("direct", "freshet", "passing", "default")
        direct, kept, passing, default = (median(cell["rounds"][name]) for name in names)
        rows.append([
            cell["shape"], report.number(direct["postgres_us"], 0),
            f"{passing['postgres_us']:.0f} + {passing['freshet_us']:.0f}",
            f"{kept['postgres_us']:.0f} + {kept['freshet_us']:.0f}", f"{total(kept) / total(passing):.2f}",
            f"{total(kept) / total(direct):.2f}", f"{kept['kept']:.0%}", f"{kept['keys']:.2f}",
            f"{total(default) / total(passing):.2f}", f"{default['kept']:.0%}",
        ])
    header = [
        "statement", "direct µs", "passing µs", "kept µs", "kept ÷ passing", "kept ÷ direct", "kept", "queries for keys",
        "by default ÷ passing", "kept by default",
    ]
    lines = report.preamble(run) + [
        f"- Date: {run['date']}",
        f"- {CLIENTS} connections, prepared statements, {MOVIES:,} movies; `freshet-bench run custom`, targets in turns; medians "
        "over the rounds. µs are processor time for each query, connecting included: PostgreSQL's, and where there are two "
        "Freshet's behind it",
        "- Each execution asks for another key, so that nothing hits; `--admission always`. Queries for keys: prepared, up to 32 "
        "in one batch",
        "- By default: a Freshet that keeps what is worth it. Nothing is ever asked for again, so that is little once the first "
        "results have been kept on trust",
    ]
    statements = "\n".join(f"- {cell['shape']}: `{cell['sql']}`" for cell in run["cells"])
    head = f"# What it costs to keep a result\n\nCommand: `{run['command']}`."
    return "\n\n".join([head, "\n".join(lines), report.table(header, rows), statements]) + "\n"

"""One application: installed, seeded, crawled direct and through Freshet in turns, page by page, then written to."""

import contextlib
import statistics
import time

import figures

from app import Client, Web
from database import Freshet, Relay, make_scratch
from first_hit import first_hit
from measure import say


class Side:
    """The application's web server with a database behind a relay, direct or through Freshet."""

    def __init__(self, web, relay):
        self.web, self.relay = web, relay
        self.seconds, self.statements, self.own = [], 0, 0

    def get(self, client, path, measured):
        before = self.relay.counts()
        answer = client.get(self.web.port, path)
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}: {answer.text[:2000]}")
        if measured:
            after = self.relay.counts()
            self.seconds.append(answer.seconds)
            self.statements += after["statements"] - before["statements"]
        return answer.text


class Run:
    def __init__(self, app, direct, through, freshet):
        self.app, self.direct, self.through, self.freshet = app, direct, through, freshet
        self.clients = {"anonymous": {}, "member": {}}
        self.compared = self.wrong = self.undecided = 0
        self.different = []

    def client(self, side, who):
        return self.clients[who].setdefault(side, Client())

    def log_in(self):
        """One login; both servers know its session, which is in the database or in the cookie."""
        client = Client()
        self.app.login(client, self.direct.web.port)
        self.clients["member"] = {self.direct: client, self.through: Client(dict(client.cookies))}

    def crawl(self, measured):
        for who, path in self.app.pages:
            for side in (self.direct, self.through):
                side.get(self.client(side, who), path, measured)

    def compare(self, who, path):
        """A page through Freshet is right if it is the one that was there before it was asked for, or after.

        A page that changes by being looked at is looked at once more. One that shows rows of equal rank in turns of the database's
        own is right if the database gives it once more, too.
        """
        for last in (False, True):
            before, page, after = (self._page(side, who, path) for side in (self.direct, self.through, self.direct))
            if page in (before, after) or before == after:
                self.compared += 1
                if page not in (before, after) and not self._comes_again(page, who, path):
                    self.wrong += 1
                    self.different.append((path, _difference(before, page)))
                return
            if last:
                self.undecided += 1
                self.different.append((path, _difference(before, after)))

    def _comes_again(self, page, who, path):
        return any(self._page(self.direct, who, path) == page for _ in range(4))

    def _page(self, side, who, path):
        return self.app.normalise(side.get(self.client(side, who), path, False))

    def write(self, number):
        """A change through Freshet. Its page has to show it at once, to everybody."""
        mark, paths = self.app.write(self.client(self.through, "member"), self.through.web.port, number)
        for who in ("member", "anonymous"):
            page = self.through.get(self.client(self.through, who), paths[0], False)
            self.compared += 1
            if mark not in page:
                self.wrong += 1
                self.different.append((paths[0], f"does not show {mark!r}"))
            for path in paths:
                self.compare(who, path)


def _difference(one, other):
    """Both pages from where they begin to differ."""
    at = next((n for n, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return [page[max(0, at - 60):at + 100] for page in (one, other)]


def counters(freshet):
    found = figures.counters(freshet.metrics_url)
    passed = figures.passed_reasons(freshet.metrics_url)
    return {"hits": found["freshet_hits_total"], "fills": found["freshet_fills_total"], "passed": passed}


def spent(before, after):
    passed = {name: value - before["passed"].get(name, 0) for name, value in after["passed"].items()}
    passed = {name: round(value) for name, value in passed.items() if value}
    return {"hits": after["hits"] - before["hits"], "fills": after["fills"] - before["fills"], "passed": passed}


@contextlib.contextmanager
def kept_running(running, *made):
    """Servers for the time of one application."""
    for server in made:
        running.append(server)
        server.start()
    try:
        yield
    finally:
        for server in reversed(made):
            server.stop()


def measure(kind, database_class, options, running):
    folder = options.scratch / kind.__name__.lower()
    make_scratch(folder)
    database = database_class(folder)
    with kept_running(running, database):
        app = kind(options.packages, folder / "app", database)
        started = time.monotonic()
        app.install()
        say(f"apps: {app.name}: installed and seeded in {time.monotonic() - started:.0f} s")
        relays = [Relay(folder, database), Relay(folder, database)]
        with kept_running(running, *relays):
            freshet = Freshet(folder, options.freshet, database.upstream(relays[1].port))
            with kept_running(running, freshet):
                webs = [Web(app, "web-direct", relays[0].port), Web(app, "web-through", freshet.port)]
                with kept_running(running, *webs):
                    return crawl(app, Run(app, Side(webs[0], relays[0]), Side(webs[1], relays[1]), freshet), options)


def crawl(app, run, options):
    run.log_in()
    for _ in range(options.warm):
        run.crawl(False)
    before = counters(run.freshet)
    for _ in range(options.rounds):
        run.crawl(True)
    crawled = spent(before, counters(run.freshet))
    for who, path in app.pages:
        run.compare(who, path)
    before = counters(run.freshet)
    for number in range(options.writes):
        run.write(number)
    written = spent(before, counters(run.freshet))
    shown = {name: app.database.ask(run.freshet.port, f"SHOW {name}") for name in ("PROXIED QUERIES", "CACHES")}
    pages = options.rounds * len(app.pages)
    return {
        "application": app.name, "pages": len(app.pages), "rounds": options.rounds, "crawled": crawled, "written": written,
        "statements": {"direct": run.direct.statements / pages, "through": run.through.statements / pages},
        "median_ms": {side: statistics.median(got.seconds) * 1000 for side, got in (("direct", run.direct), ("through", run.through))},
        "compared": run.compared, "wrong": run.wrong, "undecided": run.undecided, "different": run.different[:20],
        "proxied": shown["PROXIED QUERIES"], "caches": shown["CACHES"], "first_hit": first_hit(app, run.direct.relay, run.through.relay, run.freshet),
    }

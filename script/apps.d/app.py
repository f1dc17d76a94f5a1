"""What all applications have in common: a scratch folder, a database, two web servers on it, a client that crawls."""

import html
import http.client
import os
import re
import subprocess
import time
import urllib.parse

import servers

# Pages name the host that the client asked for: the same one on each web server, so that their pages can be compared.
HOST = "app.test"
PASSWORD = "a Long-enough passw0rd"


class App:
    """One application. Its subclass says how it is installed, seeded, served, crawled and written to."""

    name = ""
    family = ""  # "mysql" or "pg"
    pages = ()  # (as whom: "anonymous" or "member", path)
    writes = 12
    login_statements = ()  # what a session of the application sends before its first read
    first_read = ""

    def __init__(self, packages, folder, database):
        self.packages, self.folder, self.database = packages, folder, database

    def environment(self, port):
        return os.environ | {"APP_DB_PORT": str(port)}

    def run(self, *command, port=None, **options):
        """Runs a program of the application's own, at the database itself."""
        environment = self.environment(port or self.database.port)
        done = subprocess.run(
            command, cwd=self.folder, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False, **options,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, command))[:200]}:\n{done.stdout[:1500]}\n…\n{done.stdout[-1500:]}")
        return done.stdout

    def normalise(self, text):
        return text


class Web(servers.Server):
    """One web server of an application, whose database is at `database_port`."""

    def __init__(self, app, target, database_port):
        super().__init__(app.folder)
        self.app, self.target, self.database_port = app, target, database_port

    def start(self):
        environment = self.app.environment(self.database_port)
        self.spawn(self.app.serve(self.port), cwd=self.app.folder, env=environment)
        self.wait_ready(self.accepts)


def php(*arguments):
    """As under FPM: a compiled page is kept. No limits of the machine's own configuration."""
    settings = ["opcache.enable_cli=1", "opcache.file_update_protection=0", "memory_limit=512M", "display_errors=stderr"]
    return [servers.find("php", "PHP_BIN"), *(part for setting in settings for part in ("-d", setting)), *arguments]


class Answer:
    def __init__(self, response, seconds):
        self.status, self.seconds = response.status, seconds
        self.location = response.getheader("Location")
        self.text = response.read().decode("utf-8", "replace")

    def field(self, name):
        """The value of a hidden field of a form."""
        for tag in re.findall(r"<input\b[^>]*>", self.text):
            if re.search(rf"""name=["']{re.escape(name)}["']""", tag):
                value = re.search(r"""value=["']([^"']*)["']""", tag)
                return html.unescape(value.group(1)) if value else ""
        raise RuntimeError(f"no field {name} in the page (status {self.status}): {self.text[:500]}")


class Client:
    """A browser of one user: keeps cookies, follows redirections to the same host."""

    def __init__(self, cookies=None):
        self.cookies = cookies if cookies is not None else {}

    def get(self, port, path):
        return self._ask(port, "GET", path)

    def post(self, port, path, form):
        return self._ask(port, "POST", path, urllib.parse.urlencode(form))

    def _ask(self, port, method, path, body=None):
        for _ in range(5):
            answer = self._once(port, method, path, body)
            if answer.status not in (301, 302, 303, 307) or not answer.location:
                return answer
            parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"http://{HOST}{path}", answer.location))
            path = parts.path + (f"?{parts.query}" if parts.query else "")
            method, body = "GET", None
        raise RuntimeError(f"redirected too often: {path}")

    def _once(self, port, method, path, body):
        headers = {"Host": HOST, "User-Agent": "apps", "Referer": f"http://{HOST}{path}", "Connection": "close"}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            started = time.monotonic()
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = Answer(response, 0)
            answer.seconds = time.monotonic() - started
            for name, value in response.getheaders():
                if name.lower() == "set-cookie":
                    self._keep(value)
        finally:
            connection.close()
        return answer

    def _keep(self, line):
        name, _, value = line.partition(";")[0].partition("=")
        if not value or value == "deleted" or "max-age=0" in line.lower():
            self.cookies.pop(name.strip(), None)
        else:
            self.cookies[name.strip()] = value

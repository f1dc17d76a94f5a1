"""The servers under measurement: each started here, on a private port, in a temporary directory, ended by its pid."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

POSTGRES_BIN = Path(os.environ.get("FRESHET_PG_15_BIN", "/usr/lib/postgresql/15/bin"))
POSTGRES_SETTINGS = {
    "wal_level": "logical",
    "fsync": "off",
    "shared_buffers": "512MB",
    "max_connections": "250",
    "max_wal_size": "4GB",
    "autovacuum": "off",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
}
READY_SECONDS_MAX = 30


class Missing(Exception):
    """A program that is needed for this part is not there."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find(name, variable):
    """A program by environment variable, path, or the places where Debian keeps servers."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    found = os.environ.get(variable) or shutil.which(name, path=path)
    if not found or not os.access(found, os.X_OK):
        raise Missing(f"{name} is not installed (or {variable} does not name it)")
    return found


def server_account():
    """Servers refuse to run as root: then they run as user postgres (or nobody)."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        except KeyError:
            continue
    return {}


def keep_secret(path):
    """The file becomes the servers' own, as they want it."""
    path.chmod(0o600)
    account = server_account()
    if account:
        shutil.chown(path, account["user"], account["group"])


class Server:
    """A child process with a log file. `target` names it in the tables; `port` is where its clients connect."""

    target = ""
    stop_signal = signal.SIGTERM
    metrics_url = None

    def __init__(self, directory):
        self.directory = Path(directory)
        self.port = free_port()
        self.process = None

    def spawn(self, command, **options):
        with open(self.log, "wb") as log:
            # A session of its own: Ctrl-C reaches this script alone, which then stops the servers in order.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
            )

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        return self._file("log")

    def _file(self, ending):
        return self.directory / f"{self.target.replace(' ', '-')}.{ending}"

    def wait_ready(self, ready):
        for _ in range(READY_SECONDS_MAX * 20):
            if self.process.poll() is not None:
                break
            if ready():
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.target} did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def accepts(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def stop(self):
        if self.process is None or self.process.poll() is not None:
            return
        for number in (self.stop_signal, signal.SIGKILL):
            self.process.send_signal(number)
            try:
                self.process.wait(timeout=15)
                return
            except subprocess.TimeoutExpired:
                continue


@contextlib.contextmanager
def started(running, makers, skipped):
    """Starts servers for a while. Those of others that cannot be had are left out, with the reason in `skipped`.

    A maker is a function, since a missing program is known only when its server is made.
    """
    made, ready = [], []
    try:
        for make in makers:
            try:
                made.append(make())
                running.append(made[-1])  # where a second Ctrl-C ends the stopping below, what is left is stopped there
                made[-1].start()
                ready.append(made[-1])
            except Missing as missing:
                skipped.append(str(missing))
            except RuntimeError as error:
                if isinstance(made[-1], Freshet):
                    raise
                skipped.append(str(error).strip())
        yield ready
    finally:
        for server in reversed(made):
            server.stop()


class Postgres(Server):
    target = "direct"
    stop_signal = signal.SIGINT  # fast shutdown: does not wait for clients

    def __init__(self, directory, settings=None, hba=None):
        super().__init__(directory)
        self.settings, self.hba = POSTGRES_SETTINGS | (settings or {}), hba

    def start(self):
        account = server_account()
        data = self.directory / "data"
        data.mkdir()
        if account:
            shutil.chown(data, account["user"], account["group"])
        subprocess.run(
            [POSTGRES_BIN / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
            + ["--no-sync"],
            check=True, stdout=subprocess.DEVNULL, cwd="/", **account,
        )
        settings = self.settings | {"port": str(self.port), "unix_socket_directories": str(data)}
        with open(data / "postgresql.conf", "a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        if self.hba:
            (data / "pg_hba.conf").write_text(self.hba)
        self.spawn([POSTGRES_BIN / "postgres", "-D", data], cwd="/", **account)
        ready = [POSTGRES_BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        self.wait_ready(lambda: subprocess.run(ready, check=False).returncode == 0)

    def sql(self, text):
        """Runs statements with psql; what they return, unaligned."""
        command = [POSTGRES_BIN / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres"]
        command += ["-h", "127.0.0.1", "-p", str(self.port), "postgres"]
        done = subprocess.run(command, input=text, check=True, text=True, stdout=subprocess.PIPE, cwd="/")
        return done.stdout.strip()


class Freshet(Server):
    def __init__(self, directory, binary, upstream, memory="512MiB", target="freshet", sslmode="disable", options=()):
        super().__init__(directory)
        self.target, self.binary, self.memory, self.options = target, binary, memory, options
        self.upstream = f"postgres://postgres@127.0.0.1:{upstream.port}/postgres?sslmode={sslmode}"
        self.http = free_port()
        self.metrics_url = f"http://127.0.0.1:{self.http}/metrics"

    def start(self):
        addresses = ["--listen", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{self.http}"]
        command = [self.binary, "serve", "--upstream", self.upstream, *addresses, "--memory", self.memory]
        self.spawn([*command, *self.options])
        self.wait_ready(self.healthy)

    def healthy(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/health", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


class PgBouncer(Server):
    """Session pooling if not told otherwise, since version 1.18 keeps prepared statements in no other mode.

    `account` is the user of its upstream connections; None: the client's own.
    """

    target = "pgbouncer"

    def __init__(self, directory, upstream, target="pgbouncer", account="postgres", **settings):
        super().__init__(directory)
        self.binary, self.upstream, self.target = find("pgbouncer", "PGBOUNCER_BIN"), upstream, target
        self.account, self.settings = account, settings

    def start(self):
        settings = {
            "listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "any",
            "pool_mode": "session", "max_client_conn": 200, "default_pool_size": 100,
            "ignore_startup_parameters": "extra_float_digits", "log_connections": 0, "log_disconnections": 0,
            "server_tls_sslmode": "disable",
        } | self.settings
        user = f" user={self.account}" if self.account else ""
        lines = [
            "[databases]", f"postgres = host=127.0.0.1 port={self.upstream.port} dbname=postgres{user}", "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        file = self._file("ini")
        file.write_text("\n".join(lines) + "\n")
        self.spawn([self.binary, "-q", file], cwd="/", **server_account())
        self.wait_ready(self.accepts)


class HAProxy(Server):
    """Forwards bytes between sockets and reads none of them."""

    target = "haproxy"
    threads = 2

    def __init__(self, directory, upstream):
        super().__init__(directory)
        self.binary, self.upstream = find("haproxy", "HAPROXY_BIN"), upstream

    def start(self):
        file = self._file("cfg")
        file.write_text(
            f"global\n  nbthread {self.threads}\n  maxconn 4000\n"
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 10m\n  timeout server 10m\n"
            f"listen postgres\n  bind 127.0.0.1:{self.port}\n  server upstream 127.0.0.1:{self.upstream.port}\n"
        )
        self.spawn([self.binary, "-db", "-f", file], cwd="/", **server_account())
        self.wait_ready(self.accepts)

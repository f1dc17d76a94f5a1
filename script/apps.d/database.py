"""What stands behind the applications: a database server for each, relays that delay, and Freshet."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import servers

DELAY_SECONDS = 0.001
OWN_PASSWORD = "own"
GRANTS = "SELECT, SHOW VIEW, TRIGGER, REPLICATION SLAVE, REPLICATION CLIENT ON *.*"  # as docs/guide/mysql.md says


class Mariadb(servers.Server):
    """Debian's defaults, with what docs/guide/mysql.md asks for."""

    target, family = "mariadb", "mysql"
    settings = (
        "bind-address=127.0.0.1", "skip-name-resolve", "character-set-server=utf8mb4", "log-bin=binlog", "binlog-format=ROW",
        "binlog-row-metadata=FULL", "server-id=1", "innodb-flush-log-at-trx-commit=0",
    )

    def start(self):
        account = servers.server_account()
        data = self.directory / "mariadb-data"
        data.mkdir()
        script = self.directory / "accounts.sql"
        script.write_text(
            "CREATE DATABASE app;\nDELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n"
            "CREATE USER app@'%' IDENTIFIED BY 'app';\nGRANT ALL ON app.* TO app@'%';\n"
            f"CREATE USER freshet@'%' IDENTIFIED BY '{OWN_PASSWORD}';\nGRANT {GRANTS} TO freshet@'%';\n"
        )
        if account:
            shutil.chown(data, account["user"], account["group"])
        options = [f"--datadir={data}", *(f"--{setting}" for setting in self.settings)]
        install = [servers.find("mariadb-install-db", "MARIADB_INSTALL_DB"), "--no-defaults", f"--datadir={data}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db", f"--extra-file={script}"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL, cwd="/", **account)
        command = [servers.find("mariadbd", "MARIADBD_BIN"), "--no-defaults", *options, f"--port={self.port}"]
        self.spawn([*command, f"--socket={data}/socket", f"--pid-file={data}/pid"], cwd="/", **account)
        self.wait_ready(self.accepts)

    def ask(self, port, text):
        """Rows of a statement of Freshet's account, at the server or through Freshet."""
        command = [servers.find("mariadb", "MARIADB_BIN"), "--no-defaults", "--batch", "--skip-column-names", "-h127.0.0.1"]
        command += [f"-P{port}", "-ufreshet", f"-p{OWN_PASSWORD}", "app", "-e", text]
        done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
        return [line.split("\t") for line in done.stdout.splitlines()]

    def upstream(self, port):
        return f"mysql://freshet:{OWN_PASSWORD}@127.0.0.1:{port}/app?ssl-mode=disabled"


class Postgres(servers.Postgres):
    target, family = "postgresql", "pg"

    def start(self):
        super().start()
        self.sql("CREATE ROLE freshet SUPERUSER LOGIN")
        self.sql("CREATE ROLE app LOGIN")
        self.sql("CREATE DATABASE app OWNER app")

    def sql(self, text, name="postgres"):
        command = [servers.POSTGRES_BIN / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port)]
        subprocess.run([*command, "-U", "postgres", "-c", text, name], check=True)

    def ask(self, port, text):
        command = [servers.POSTGRES_BIN / "psql", "-X", "-q", "-A", "-t", "-F", "\t", "-h", "127.0.0.1", "-p", str(port)]
        done = subprocess.run([*command, "-U", "freshet", "-c", text, "app"], check=True, text=True, stdout=subprocess.PIPE)
        return [line.split("\t") for line in done.stdout.splitlines()]

    def upstream(self, port):
        return f"postgres://freshet@127.0.0.1:{port}/app?sslmode=disable"


class Freshet(servers.Freshet):
    def __init__(self, directory, binary, upstream):
        servers.Server.__init__(self, directory)
        self.target, self.binary, self.memory, self.options = "freshet", binary, "256MiB", ()
        self.upstream = upstream
        self.http = servers.free_port()
        self.metrics_url = f"http://127.0.0.1:{self.http}/metrics"


class Relay(servers.Server):
    """A relay in a process of its own, which tells on request what has passed it."""

    target = "relay"

    def __init__(self, directory, database):
        self.directory, self.database, self.process = Path(directory), database, None

    def start(self):
        program = Path(__file__).resolve().parent / "relay.py"
        command = [sys.executable, program, self.database.family, str(self.database.port), str(DELAY_SECONDS)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        self.port = int(self.process.stdout.readline())

    def counts(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)  # it keeps nothing
            self.process.wait()


def make_scratch(path):
    """A folder that the servers' own account may pass through."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    os.chmod(path, 0o755)

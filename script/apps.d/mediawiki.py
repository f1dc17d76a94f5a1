"""MediaWiki on MariaDB, with the settings that its installer writes."""

import re
import shutil

import pymysql

from app import HOST, PASSWORD, App, php

ARTICLES = 80


class MediaWiki(App):
    name = "MediaWiki"
    family = "mysql"
    login_statements = (
        "SET group_concat_max_len = 262144, `sql_mode` = ''",
    )
    first_read = "SELECT page_id, page_namespace, page_title FROM page WHERE page_namespace = 0 AND page_title = 'Article_1' LIMIT 1"
    pages = (
        *(("anonymous", f"/index.php?title=Article_{number}") for number in range(1, 13)),
        ("anonymous", "/index.php?title=Main_Page"),
        ("anonymous", "/index.php?title=Category:Even"),
        ("anonymous", "/index.php?title=Article_3&action=history"),
        ("anonymous", "/index.php?title=Special:RecentChanges"),
        ("anonymous", "/index.php?title=Special:AllPages"),
        ("anonymous", "/index.php?title=Special:WhatLinksHere/Article_1"),
        ("anonymous", "/index.php?title=Special:Search&search=Article+7&fulltext=1"),
        ("anonymous", "/api.php?action=query&list=categorymembers&cmtitle=Category:Odd&format=json"),
        *(("member", f"/index.php?title=Article_{number}") for number in range(1, 7)),
        ("member", "/index.php?title=Article_3&action=edit"),
        ("member", "/index.php?title=Special:Watchlist"),
        ("member", "/index.php?title=Special:Contributions/Admin"),
        ("member", "/index.php?title=Special:Preferences"),
    )

    def install(self):
        shutil.copytree(self.packages / "usr/share/mediawiki", self.folder, symlinks=True)
        for link in ("LocalSettings.php", "config", "extensions", "images"):
            (self.folder / link).unlink()
        (self.folder / "extensions").symlink_to("extensions-core")
        (self.folder / "images").mkdir()
        self.run(
            *php("maintenance/install.php", "--dbtype=mysql", f"--dbserver=127.0.0.1:{self.database.port}"),
            "--dbname=app", "--dbuser=app", "--dbpass=app", f"--server=http://{HOST}", "--scriptpath=", "--lang=en",
            f"--pass={PASSWORD}", "Wiki", "Admin",
        )
        with open(self.folder / "LocalSettings.php", "a") as file:
            file.write("\n$wgDBserver = '127.0.0.1:' . getenv( 'APP_DB_PORT' );\n")
        self.seed()

    def seed(self):
        texts = self.folder / "seed"
        texts.mkdir()
        for number in range(1, ARTICLES + 1):
            (texts / f"Article {number}.txt").write_text(article(number))
        (texts / "Template:Box.txt").write_text("<div>Box of {{{1}}}, next to [[{{{2}}}]]</div>")
        files = sorted(str(path) for path in texts.iterdir())
        self.run(*php("maintenance/importTextFiles.php", "--user=Admin", "--rc", "--overwrite", *files))
        self.run(*php("maintenance/runJobs.php"))

    def serve(self, port):
        return php("-S", f"127.0.0.1:{port}", "-t", str(self.folder))

    def connect(self, port):
        account = {"user": "app", "password": "app", "database": "app"}
        return pymysql.connect(host="127.0.0.1", port=port, charset="utf8mb4", autocommit=True, **account)

    def login(self, client, port):
        form = client.get(port, "/index.php?title=Special:UserLogin")
        token = form.field("wpLoginToken")
        fields = {"wpName": "Admin", "wpPassword": PASSWORD, "wpLoginToken": token, "authAction": "login", "wploginattempt": "1"}
        client.post(port, "/index.php?title=Special:UserLogin", fields)
        if "wgUserName\":\"Admin" not in client.get(port, "/index.php?title=Main_Page").text:
            raise RuntimeError("MediaWiki: not logged in")

    def write(self, client, port, number):
        """Edits an article; the pages that show it."""
        title = f"Article_{number % 12 + 1}"
        form = client.get(port, f"/index.php?title={title}&action=edit")
        names = ("wpEditToken", "wpStarttime", "wpEdittime", "editRevId", "parentRevId", "wpUltimateParam")
        fields = {name: form.field(name) for name in names}
        fields |= {"wpTextbox1": article(number, f"Edit {number}."), "wpSummary": f"edit {number}", "wpSave": "Save", "model": "wikitext"}
        fields |= {"format": "text/x-wiki", "wpUnicodeCheck": form.field("wpUnicodeCheck")}
        client.post(port, f"/index.php?title={title}&action=submit", fields)
        paths = [f"/index.php?title={title}", f"/index.php?title={title}&action=history", "/index.php?title=Special:RecentChanges"]
        return f"Edit {number}.", paths

    def normalise(self, text):
        text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
        text = re.sub(r'"wg(RequestId|BackendResponseTime|HostName)":("[^"]*"|\d+)', "", text)
        text = re.sub(r'"(cputime|walltime|timestamp|cachereport|wgPageParseReport)":("[^"]*"|\{[^{}]*\})', "", text)
        text = re.sub(r"[0-9a-f]{32,48}(\+\\+|%2B%5C)", "TOKEN", text)
        text = re.sub(r"(from=|&quot;from&quot;:&quot;)\d{14}", "", text)
        text = re.sub(r"Show new changes starting from.*?</a>", "", text, flags=re.S)
        text = re.sub(r'name="(wpStarttime|wpEdittime|wpEditToken)"[^>]*|[^<]*name="(wpStarttime|wpEdittime|wpEditToken)"', "", text)
        text = re.sub(r'value="\d{14}"', "", text)
        # What the forms of the settings and of the lists show of the clock, to the minute.
        text = re.sub(r"\d\d:\d\d, (\d+ \w+ \d{4}|\w+ \d+, \d{4}|\d{4} \w+ \d+)|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "", text)
        return re.sub(r"as of \d\d:\d\d, \d+ \w+ \d{4}", "", text)


def article(number, more=""):
    links = " ".join(f"[[Article {(number * step) % ARTICLES + 1}]]" for step in (3, 7, 11))
    category = "Even" if number % 2 == 0 else "Odd"
    lines = [f"'''Article {number}''' is about lake {number}. {more}", f"== Links ==\n{links}", f"{{{{Box|{number}|Article {number % 9 + 1}}}}}"]
    lines += ["== Text ==\n" + f"Water runs into lake {number} and out of it. " * 12, f"[[Category:{category}]]"]
    return "\n\n".join(lines)

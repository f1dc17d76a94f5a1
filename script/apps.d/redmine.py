"""Redmine on PostgreSQL: a Rails application whose sessions live as long as its web server."""

import re
import shutil

import psycopg2

from app import PASSWORD, App

ISSUES = 120
DATABASE = """production:
  adapter: postgresql
  database: app
  host: 127.0.0.1
  port: <%= ENV['APP_DB_PORT'] %>
  username: app
  encoding: utf8
"""
SEED = r"""
password, issues = ENV['SEED_PASSWORD'], ENV['SEED_ISSUES'].to_i
admin = User.find_by(login: 'admin')
admin.password = admin.password_confirmation = password
admin.must_change_passwd = false
admin.save!
User.current = admin
Setting.rest_api_enabled = '1'
projects = (1..4).map do |n|
  project = Project.new(name: "Lake #{n}", identifier: "lake-#{n}", description: "Water of lake #{n}", is_public: true)
  project.enabled_module_names = %w[issue_tracking news wiki boards time_tracking]
  project.trackers = Tracker.all
  project.save!
  role = Role.where(builtin: 0).first
  Member.create!(project: project, principal: admin, roles: [role])
  wiki = project.wiki || Wiki.create!(project: project, start_page: 'Wiki')
  page = WikiPage.create!(wiki: wiki, title: 'Wiki')
  WikiContent.create!(page: page, author: admin, text: "h1. Lake #{n}\n\n" + "Water runs in and out. " * 20)
  2.times { |m| News.create!(project: project, author: admin, title: "News #{m}", summary: 'Some', description: 'Text of it') }
  project
end
versions = projects.map { |project| Version.create!(project: project, name: '1.0') }
issues.times do |n|
  project = projects[n % 4]
  issue = Issue.new(project: project, tracker: Tracker.all[n % 3], author: admin, subject: "Issue #{n} of the lake",
    description: 'Water runs into the lake. ' * 10, priority: IssuePriority.all[n % 3], status: IssueStatus.first)
  issue.fixed_version = versions[n % 4] if n % 5 == 0
  issue.assigned_to = admin if n % 3 == 0
  issue.save!
  (n % 3).times { |m| noted = Issue.find(issue.id); noted.init_journal(admin, "Note #{m}"); noted.save! }
end
puts 'seeded'
"""
KEYLESS = """
DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)
    LOOP EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', name); END LOOP;
END $$
"""


class Redmine(App):
    name = "Redmine"
    family = "pg"
    login_statements = ("SET standard_conforming_strings = on", "SET SESSION timezone TO 'UTC'")
    first_read = "SELECT users.* FROM users WHERE users.login = 'admin' LIMIT 1"
    pages = (
        ("anonymous", "/"), ("anonymous", "/projects"), ("anonymous", "/issues"), ("anonymous", "/news"),
        *(("anonymous", f"/projects/lake-{number}") for number in range(1, 5)),
        *(("anonymous", f"/projects/lake-{number}/issues") for number in range(1, 3)),
        *(("anonymous", f"/issues/{number}") for number in range(1, 11)),
        ("anonymous", "/projects/lake-1/wiki"), ("anonymous", "/projects/lake-2/roadmap"), ("anonymous", "/projects/lake-1/activity"),
        ("anonymous", "/issues.json"),
        ("member", "/my/page"), ("member", "/issues?assigned_to_id=me&set_filter=1"), ("member", "/projects/lake-1/issues/new"),
        *(("member", f"/issues/{number}") for number in range(1, 7)),
        ("member", "/users/1"), ("member", "/search?q=lake"), ("member", "/projects/lake-3/settings"), ("member", "/admin/projects"),
    )

    def environment(self, port):
        return super().environment(port) | {"RAILS_ENV": "production", "REDMINE_LANG": "en", "RAILS_SERVE_STATIC_FILES": "1"}

    def install(self):
        shutil.copytree(self.packages / "usr/share/redmine", self.folder, symlinks=True)
        for link in ("Gemfile.lock", "instances", "config/database.yml"):
            (self.folder / link).unlink()
        own = self.folder / "instances/default"
        for name in ("config", "tmp/cache", "log", "files", "plugins"):
            (own / name).mkdir(parents=True)
        (self.folder / "plugins").mkdir(exist_ok=True)
        (own / "config/database.yml").write_text(DATABASE)
        (own / "config/secret_key.txt").write_text("0123456789abcdef" * 8)
        (self.folder / "Gemfile.local").write_text('gem "pg"\ngem "puma"\n')
        (self.folder / "seed.rb").write_text(SEED)
        self.run("ruby", "bin/rake", "db:migrate")
        self.run("ruby", "bin/rake", "redmine:load_default_data")
        # What `freshet check` names: tables without a key are not cached without.
        self.database.sql(KEYLESS, "app")
        self.run("env", f"SEED_PASSWORD={PASSWORD}", f"SEED_ISSUES={ISSUES}", "ruby", "bin/rails", "runner", "seed.rb")

    def serve(self, port):
        return ["ruby", "-S", "puma", "-b", f"tcp://127.0.0.1:{port}", "-e", "production", "-t", "1:1", "config.ru"]

    def connect(self, port):
        connection = psycopg2.connect(host="127.0.0.1", port=port, user="app", dbname="app", sslmode="disable")
        connection.autocommit = True
        return connection

    def login(self, client, port):
        token = client.get(port, "/login").field("authenticity_token")
        form = {"authenticity_token": token, "username": "admin", "password": PASSWORD, "login": "Login"}
        client.post(port, "/login", form)
        if "/logout" not in client.get(port, "/my/page").text:
            raise RuntimeError("Redmine: not logged in")

    def write(self, client, port, number):
        """A note on an issue, or a new subject; the pages that show it."""
        issue, mark = number % 10 + 1, f"Edit number {number} of it"
        token = client.get(port, f"/issues/{issue}/edit").field("authenticity_token")
        change = {"issue[notes]": mark} if number % 2 == 0 else {"issue[subject]": mark}
        client.post(port, f"/issues/{issue}", {"_method": "patch", "authenticity_token": token} | change)
        project = f"/projects/lake-{(issue - 1) % 4 + 1}"
        return mark, [f"/issues/{issue}", f"{project}/issues", f"{project}/activity"]

    def normalise(self, text):
        text = re.sub(r'name="authenticity_token" value="[^"]*"|name="csrf-token" content="[^"]*"', "", text)
        text = re.sub(r'name="[\w-]+-[0-9a-f]{8}"', "", text)
        text = re.sub(r'(key=|"api-access-key"[^>]*>|data-[\w-]*time=)"?\w+', "", text)
        return re.sub(r"(less than a|about an?|\d+) (minute|hour|second)s?", "", text)

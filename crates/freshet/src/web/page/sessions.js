// The sessions: who is connected, and what the database executes for them.

import { $, count, duration, element, pairs, set } from "/elements.js";
import { ROWS_MAX, cut, plain, sortable } from "/table.js";

const COLUMNS = [
  { key: "statement", title: "Statement", value: (s) => s.query ?? s.digest, text: (value, s) => value ?? (s.state === "active" ? "(not known)" : "–") },
  { key: "running", title: "Running for", value: (s) => s.running_seconds, text: duration },
  { key: "state", title: "State", value: (s) => s.state },
  { key: "user", title: "User", value: (s) => s.user },
  { key: "database", title: "Database", value: (s) => s.connected_to || s.database, later: true },
  { key: "application", title: "Application", value: (s) => s.application_name || null, later: true },
  { key: "client", title: "Client", value: (s) => s.client ?? "socket", later: true },
  { key: "server", title: "Server", value: (s) => s.server ?? (s.state === "console" ? null : "socket"), later: true },
  { key: "pin", title: "Pinned by", value: (s) => s.pin, later: true },
  { key: "pinned", title: "Pinned for", value: (s) => s.pin_seconds, text: duration, later: true },
  { key: "open", title: "Connected for", value: (s) => s.open_seconds, text: duration, later: true },
  { key: "id", title: "Number", value: (s) => s.id, text: String, later: true },
];
const TEXTS = ["statement", "state", "user", "database", "application", "client", "server", "pin", "id"];

let all = [];
let leftOut = 0;
const rows = new Map();
const table = sortable({ prefix: "sessions-", columns: COLUMNS, first: { key: "running", down: true }, texts: TEXTS, list });

function row() {
  const cells = COLUMNS.map((column) => element("td", { class: column.later ? "later" : "" }));
  cells[0].append(element("span", { class: "sql" }));
  return { line: element("tr", { class: "row" }, ...cells), cells };
}

function fill(made, session) {
  made.cells.forEach((cell, at) => {
    const { value, text } = COLUMNS[at];
    const of = value(session);
    set(at === 0 ? cell.firstChild : cell, text ? text(of, session) : (of ?? "–"));
  });
  made.cells[0].firstChild.title = session.digest ?? "";
}

function matches(session, sought) {
  const texts = [session.query, session.user, session.database, session.connected_to, session.application_name, session.client, session.server, session.state, session.pin];
  return session.digest === sought || String(session.id) === sought || texts.some((text) => plain(text).includes(sought));
}

function list() {
  const found = table.arrange(all, matches);
  const shown = found.slice(0, ROWS_MAX);
  const lines = shown.map((session) => {
    if (!rows.has(session.id)) rows.set(session.id, row());
    const made = rows.get(session.id);
    fill(made, session);
    return made.line;
  });
  table.put("sessions-table", lines);
  const here = new Set(shown.map((session) => session.id));
  for (const key of rows.keys()) if (!here.has(key)) rows.delete(key);
  set($("sessions-count"), found.length === all.length ? count(all.length) : `${count(found.length)} of ${count(all.length)}`);
  const none = all.length ? "No session matches the search." : "No session is open.";
  const more = leftOut ? ` ${count(leftOut)} more are not listed.` : "";
  set($("sessions-note"), (shown.length === 0 ? none : cut(found, shown)) + more);
}

export function show(figures) {
  all = figures.list;
  leftOut = figures.left_out;
  list();
  $("sessions").replaceChildren(
    ...pairs([
      ["open", count(figures.open)],
      ["accepted since the start", count(figures.accepted)],
      ["failed logins", count(figures.login_failures)],
      ["commit waits", `${count(figures.commit_waits)}, ${duration(figures.commit_wait_seconds_mean)} on average`],
      ["commit waits skipped", count(figures.commit_waits_skipped)],
    ]),
  );
}

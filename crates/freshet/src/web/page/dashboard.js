// The dashboard. Samples come as server-sent events; tables are read every few seconds while the page is visible.

import * as charts from "/charts.js";
import { $, bytes, count, digits, duration, element, pairs, percent, rate, set } from "/elements.js";
import * as sessions from "/sessions.js";
import { ROWS_MAX, cut, plain, sortable } from "/table.js";

const SAMPLES_MAX = 600;
const TABLES_EVERY = 3000;
// Without a sample for so long, the connection is lost.
const SILENCE_MAX = 4000;
const AGAIN_AFTER = 2000;

// ---- the connection -----------------------------------------------------------------------------------------------

let samples = [];
let plots = null;
let lastSample = 0;
let source = null;
// The database that all figures are about; empty: all together.
let database = "";
// A digest is unique in one database only.
const id = (q) => `${q.digest} ${q.database}`;
const of = () => (database ? `?database=${encodeURIComponent(database)}` : "");

async function read(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function show(state, text) {
  const link = $("link");
  link.dataset.state = state;
  set(link, text);
  document.body.toggleAttribute("data-lost", state === "lost");
  if (state === "lost") document.title = "connection lost · Freshet";
}

function lose() {
  show("lost", "connection lost, trying again …");
}

/** The past first, then what comes. */
async function connect() {
  source?.close();
  try {
    const status = await read(`/api/status${of()}`);
    start(status);
  } catch (error) {
    // A reload has removed it.
    if (error.message.endsWith(": 404")) database = "";
    lose();
    setTimeout(connect, AGAIN_AFTER);
    return;
  }
  source = new EventSource(`/api/events${of()}`);
  source.addEventListener("sample", (event) => take(JSON.parse(event.data)));
  source.onerror = () => {
    lose();
    source.close();
    setTimeout(connect, AGAIN_AFTER);
  };
}

function start(status) {
  plots ??= charts.create();
  samples = status.history;
  choices(status.databases);
  lastSample = Date.now();
  const several = !database && status.databases.length > 1;
  set($("where"), several ? `before ${status.databases.length} databases` : `before ${status.upstream}`);
  set($("footer"), `Freshet ${status.version}, running for ${duration(status.uptime_seconds)}`);
  banner(status.health);
  tables(status);
  if (samples.length) present();
  show("live", "live");
}

/** The choice is there if there are several databases. */
function choices(names) {
  const select = $("database");
  const key = JSON.stringify(names);
  if (select.dataset.shown !== key) {
    select.dataset.shown = key;
    const one = (name) => element("option", { value: name }, name);
    select.replaceChildren(element("option", { value: "" }, "all"), ...names.map(one));
    $("choice").hidden = names.length < 2;
  }
  select.value = database;
}

function take(sample) {
  lastSample = Date.now();
  samples.push(sample);
  if (samples.length > SAMPLES_MAX) samples.shift();
  if ($("link").dataset.state !== "live") show("live", "live");
  if (!document.hidden) present();
}

setInterval(() => {
  if ($("link").dataset.state === "live" && Date.now() - lastSample > SILENCE_MAX) lose();
}, 1000);

setInterval(async () => {
  if (document.hidden || $("link").dataset.state !== "live") return;
  try {
    const asked = of();
    const names = ["queries", "advice", "memory", "sessions", "streams"];
    const [queries, advice, memory, sessions, streams] = await Promise.all(names.map((name) => read(`/api/${name}${asked}`)));
    if (asked !== of()) return;
    tables({ queries, advice, memory, sessions, streams });
  } catch {
    // The events tell whether the connection is lost.
  }
}, TABLES_EVERY);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && samples.length) present();
});

// ---- the present --------------------------------------------------------------------------------------------------

function banner(findings) {
  const box = $("health");
  const key = JSON.stringify(findings);
  if (box.dataset.shown === key) return;
  box.dataset.shown = key;
  const one = ({ level, text, next_step }) => element("div", { class: "banner", "data-level": level }, element("strong", null, text), next_step);
  box.replaceChildren(...findings.map(one));
}

function tile(id, title, of) {
  let box = $(`tile-${id}`);
  if (!box) {
    box = element("div", { class: "tile", id: `tile-${id}` }, element("h3", null, title), element("p", null), element("div", null));
    $("tiles").append(box);
  }
  const [value, unit, more, kind] = of;
  const [, number, note] = box.children;
  number.replaceChildren(value, unit ? element("small", null, ` ${unit}`) : "");
  set(note, more);
  box.dataset.of = kind ?? "";
}

/** Number and unit apart. */
const split = (text) => {
  const [number, ...unit] = text.split(" ");
  return [number, unit.join(" ")];
};

function present() {
  const s = samples[samples.length - 1];
  banner(s.health);
  document.title = `${s.health.length ? "⚠ " : ""}${percent(s.hit_ratio)} hits · Freshet`;
  const [hits, thousands] = split(rate(s.hits_per_second));
  tile("cache", "From the cache", [hits, `${thousands}/s`, `${percent(s.hit_ratio)} of all statements`, "cache"]);
  const [rest, more] = split(rate(s.database_per_second));
  tile("database", "From the database", [rest, `${more}/s`, `${rate(s.fills_per_second)} to be cached, ${rate(s.passed_per_second)} passed`, "database"]);
  tile("hit-latency", "Latency, cache", [...split(duration(s.hit_p50_seconds)), `99%: ${duration(s.hit_p99_seconds)}`]);
  tile("database-latency", "Latency, database", [...split(duration(s.database_p50_seconds)), `99%: ${duration(s.database_p99_seconds)}`]);
  const late = s.staleness_seconds == null || s.staleness_seconds > s.staleness_max_seconds;
  tile("staleness", "Staleness", [...split(duration(s.staleness_seconds)), `limit: ${duration(s.staleness_max_seconds)}`, late ? "problem" : null]);
  tile("memory", "Memory of results", [...split(bytes(s.bytes)), `of ${bytes(s.memory_limit_bytes)}, ${count(s.entries)} results`]);
  tile("changes", "Commits", [...split(`${rate(s.commits_per_second)} /s`), `${rate(s.invalidated_per_second)} results invalidated/s`]);
  tile("sessions", "Sessions", [count(s.sessions), "", "open now"]);
  charts.draw(plots, samples);
}

// ---- queries ------------------------------------------------------------------------------------------------------

const calls = (q) => q.hits + q.fills + q.passed;
const COLUMNS = [
  { key: "text", title: "Statement", value: (q) => q.query },
  { key: "calls", title: "Calls", value: calls, text: count, later: true },
  { key: "ratio", title: "Hit ratio", value: (q) => q.hit_ratio, text: percent, bar: true },
  { key: "hit", title: "Hit, median", value: (q) => q.hit_latency.p50_seconds, text: duration, later: true },
  { key: "answer", title: "Database, median", value: (q) => q.database_latency.p50_seconds, text: duration, later: true },
  { key: "time", title: "Time at database", value: (q) => q.database_seconds, text: duration },
  { key: "saved", title: "Time saved", value: (q) => q.saved_seconds, text: duration, later: true },
];

let queries = [];
let advice = new Map();
const rows = new Map();
const opened = new Set();

function row(query) {
  const key = id(query);
  const open = element("button", { class: "open", type: "button", "aria-expanded": "false" }, element("span", { class: "sql" }));
  const cells = COLUMNS.slice(1).map((column) => {
    const bar = column.bar ? element("span", { class: "bar", "aria-hidden": "true" }, element("i")) : null;
    return element("td", { class: column.later ? "later" : "" }, element("span"), bar);
  });
  const made = { line: element("tr", { class: "row" }, element("td", null, open), ...cells), open, cells, detail: null };
  open.addEventListener("click", () => {
    if (!opened.delete(key)) opened.add(key);
    list();
  });
  return made;
}

function fill(made, query) {
  set(made.open.firstChild, query.query.replace(/\s+/g, " "));
  made.cells.forEach((cell, at) => {
    const column = COLUMNS[at + 1];
    set(cell.firstChild, column.text(column.value(query)));
    if (column.bar) cell.lastChild.firstChild.style.width = `${query.hit_ratio * 100}%`;
  });
  const isOpen = opened.has(id(query));
  made.open.setAttribute("aria-expanded", String(isOpen));
  if (!isOpen) {
    made.detail?.remove();
    made.detail = null;
    return;
  }
  made.detail ??= element("tr", { class: "detail" }, element("td", { colspan: String(COLUMNS.length) }));
  const content = details(query);
  if (made.detail.firstChild.textContent !== content.map((part) => part.textContent).join("")) made.detail.firstChild.replaceChildren(...content);
}

function details(query) {
  const facts = [
    ["database", query.database],
    ["digest", query.digest],
    ["calls", count(calls(query))],
    ["hits", count(query.hits)],
    ["fills", count(query.fills)],
    ["passed", count(query.passed)],
    ["results cached now", count(query.entries)],
    ["results invalidated", count(query.invalidated)],
    ["bytes read to be cached", bytes(query.cached_bytes)],
    ["hit: median, 99%", `${duration(query.hit_latency.p50_seconds)}, ${duration(query.hit_latency.p99_seconds)}`],
    ["database: median, 99%", `${duration(query.database_latency.p50_seconds)}, ${duration(query.database_latency.p99_seconds)}`],
    ["time at database", duration(query.database_seconds)],
    ["time saved", duration(query.saved_seconds)],
    ["rows: cache, database", `${count(query.hit_rows)}, ${count(query.database_rows)}`],
    ["age at hits, mean", duration(query.hit_age_seconds)],
    ["break-even hit ratio", query.break_even_hit_ratio === null ? "–" : percent(query.break_even_hit_ratio)],
  ];
  const parts = [element("pre", null, query.query), element("dl", { class: "facts" }, ...pairs(facts))];
  const reasons = Object.entries(query.passed_by_reason).sort((a, b) => b[1] - a[1]);
  if (reasons.length) {
    const text = reasons.map(([reason, times]) => `${reason.replaceAll("_", " ")} (${count(times)} times)`).join(", ");
    parts.push(element("p", { class: "why" }, element("b", null, "Passed: "), text, "."));
  }
  const tables = Object.entries(query.invalidated_by).sort((a, b) => b[1] - a[1]);
  if (tables.length) {
    const text = tables.map(([table, times]) => `${table} (${count(times)} results)`).join(", ");
    parts.push(element("p", { class: "why" }, element("b", null, "Invalidated by changes of: "), text, "."));
  }
  if (query.reason) parts.push(element("p", { class: "why" }, element("b", null, "Last reason: "), query.reason));
  const remedy = advice.get(id(query))?.remedy;
  if (remedy) parts.push(element("p", { class: "why" }, element("b", null, "What to do: "), remedy));
  return parts;
}

const table = sortable({ prefix: "", columns: COLUMNS, first: { key: "time", down: true }, texts: ["text"], list });

function list() {
  const matches = (q, sought) => q.digest === sought || plain(q.query).includes(sought);
  const found = table.arrange(queries, matches);
  const shown = found.slice(0, ROWS_MAX);
  const lines = shown.flatMap((query) => {
    if (!rows.has(id(query))) rows.set(id(query), row(query));
    const made = rows.get(id(query));
    fill(made, query);
    return made.detail ? [made.line, made.detail] : [made.line];
  });
  table.put("queries-table", lines);
  const here = new Set(shown.map(id));
  for (const key of rows.keys()) if (!here.has(key)) rows.delete(key);
  set($("queries-count"), found.length === queries.length ? count(found.length) : `${count(found.length)} of ${count(queries.length)}`);
  const none = queries.length ? "No statement matches the search." : "No statement has been executed yet.";
  set($("queries-note"), shown.length === 0 ? none : cut(found, shown));
}

// ---- the other tables ---------------------------------------------------------------------------------------------

function adviseOf(all) {
  const one = (a) =>
    element(
      "li",
      null,
      element("div", { class: "cost" }, element("b", null, duration(a.database_seconds)), element("span", null, `at the database, ${count(a.passed)} calls`)),
      element("div", { class: "sql" }, a.query),
      element("div", { class: "reason" }, a.detail),
      element("div", { class: "remedy" }, element("b", null, "What to do: "), a.remedy),
    );
  $("advice-list").replaceChildren(...all.slice(0, 20).map(one));
  const more = all.length > 20 ? `${all.length - 20} more: \`freshet advise\` or SHOW ADVICE lists them.` : "";
  set($("advice-note"), all.length ? more : "Nothing passes for a reason that can be mended.");
}

function sizes(memory) {
  charts.drawSizes(plots, memory);
  const curve = memory.size_curve;
  const amount = memory.price_per_gb_and_month;
  const price = (size) => (amount == null ? null : element("span", null, `${digits((size / 1e9) * amount, 2)} ${memory.currency} a month`));
  const near = (factor) => {
    const far = (point) => Math.abs(Math.log2(point[0] / memory.limit_bytes / factor));
    return curve.reduce((best, point) => (far(point) < far(best) ? point : best));
  };
  const one = (factor, name) => {
    const [size, ratio] = near(factor);
    return element("div", null, element("span", null, `${name}, ${bytes(size)}`), element("b", null, percent(ratio)), price(size));
  };
  const several = !database && $("database").options.length > 2;
  const none = several ? "Choose a database: each has a curve of its own." : "Too few results have been requested so far to tell.";
  $("size-text").replaceChildren(...(curve.length ? [one(0.5, "half"), one(1, "now"), one(2, "double"), one(4, "four times")] : [none]));
}

function stream(s) {
  const of = element("dl", null);
  of.append(
    ...pairs([
      ["database", s.database],
      ["upstream", s.upstream],
      ["state", s.trouble ?? "established"],
      ["staleness", s.age_seconds == null ? "–" : `${duration(s.age_seconds)} of ${duration(s.staleness_max_seconds)}`],
      ["catalogue checked", s.catalog_age_seconds == null ? "never" : `${duration(s.catalog_age_seconds)} ago`],
      ["position", s.position ?? "–"],
      ["commits delivered", count(s.commits)],
      ["commits unproven", count(s.commits_unproven)],
      ["fills in flight", count(s.fills_in_flight)],
      ["tables published", count(s.tables_published)],
      ["tables in cool-off", count(s.tables_in_cool_off)],
    ]),
  );
  return of;
}

function tables(status) {
  queries = status.queries;
  advice = new Map(status.advice.map((a) => [id(a), a]));
  list();
  adviseOf(status.advice);
  sizes(status.memory);
  sessions.show(status.sessions);
  $("streams").replaceChildren(...status.streams.map(stream));
}

$("database").addEventListener("change", (event) => {
  database = event.target.value;
  connect();
});

connect();

// The charts. Colours come from the style sheet, so that they follow the colour scheme.

import { bytes, duration, percent, rate } from "/elements.js";

const HEIGHT = 190;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const charts = [];

const axis = (more) => ({
  stroke: () => colour("muted"),
  grid: { stroke: () => colour("grid"), width: 1 },
  ticks: { show: false },
  font: "12px system-ui, sans-serif",
  ...more,
});

const line = (label, name, text, more) => ({
  label,
  stroke: () => colour(name),
  width: 1.75,
  points: { show: false },
  value: (_, value) => (value == null ? "–" : text(value)),
  ...more,
});

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const fromZero = (_, low, high) => [0, high > 0 ? high * 1.08 : 1];

function filled(name) {
  return { fill: () => `${colour(name)}22` };
}

function chart(id, { series, y, text, x, hooks, size, incrs }) {
  const box = document.getElementById(id);
  const options = {
    width: box.clientWidth || 300,
    height: HEIGHT,
    padding: [8, 28, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    legend: { live: true },
    scales: { x: x?.scale ?? { time: true }, y },
    axes: [
      axis({ size: 30, space: 70, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : x ? x.text(tick) : clock(tick))) }),
      axis({ size: size ?? 58, incrs, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : text(tick))) }),
    ],
    series: [{ label: x?.label ?? "Time", value: (_, value) => (value == null ? "now" : x ? x.text(value) : clock(value)) }, ...series],
    hooks,
  };
  const plot = new uPlot(options, [[], ...series.map(() => [])], box);
  new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT })).observe(box);
  charts.push(plot);
  return plot;
}

/** A dashed line at the present limit. */
function marker(at) {
  return (plot) => {
    const value = at();
    if (!value) return;
    const x = Math.round(plot.valToPos(value, "x", true));
    const { top, height } = plot.bbox;
    plot.ctx.save();
    plot.ctx.strokeStyle = colour("limit");
    plot.ctx.setLineDash([5, 4]);
    plot.ctx.lineWidth = 1.5;
    plot.ctx.beginPath();
    plot.ctx.moveTo(x, top);
    plot.ctx.lineTo(x, top + height);
    plot.ctx.stroke();
    plot.ctx.restore();
  };
}

let limit = 0;

export function create() {
  const of = {
    rate: chart("chart-rate", {
      y: { range: fromZero },
      text: rate,
      series: [line("from the cache", "cache", (v) => `${rate(v)}/s`, filled("cache")), line("from the database", "database", (v) => `${rate(v)}/s`, filled("database"))],
    }),
    latency: chart("chart-latency", {
      y: { distr: 3 },
      text: (value) => (/^1e/.test(value.toExponential()) ? duration(value) : ""),
      series: [
        line("cache, median", "cache", duration),
        line("cache, 99%", "cache-light", duration, { dash: [6, 3] }),
        line("database, median", "database", duration),
        line("database, 99%", "database-light", duration, { dash: [6, 3] }),
      ],
    }),
    ratio: chart("chart-ratio", { y: { range: [0, 1] }, text: percent, series: [line("hit ratio", "cache", percent, filled("cache"))] }),
    staleness: chart("chart-staleness", {
      y: { range: fromZero },
      text: duration,
      series: [line("age", "cache", duration, filled("cache")), line("limit: beyond it nothing is served", "limit", duration, { dash: [5, 4] })],
    }),
    memory: chart("chart-memory", {
      y: { range: fromZero },
      text: bytes,
      size: 72,
      incrs: Array.from({ length: 50 }, (_, power) => 2 ** power),
      series: [line("results", "cache", bytes, filled("cache")), line("with overhead", "cache-light", bytes, { dash: [6, 3] }), line("limit", "limit", bytes, { dash: [5, 4] })],
    }),
    size: chart("chart-size", {
      y: { range: [0, 1] },
      text: percent,
      x: { label: "Memory limit", text: bytes, scale: { time: false, distr: 3, log: 2 } },
      series: [line("would be served", "cache", percent, filled("cache"))],
      hooks: { draw: [marker(() => limit)] },
    }),
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((plot) => plot.redraw(false)));
  return of;
}

/** The legend shows the latest values, unless the pointer is on the chart. */
function put(plot, data) {
  plot.setData(data);
  if (plot.cursor.left == null || plot.cursor.left < 0) plot.setLegend({ idx: data[0].length - 1 });
}

const positive = (value) => (value > 0 ? value : null);

export function draw(of, samples) {
  const column = (read) => samples.map(read);
  const time = column((s) => s.time / 1000);
  put(of.rate, [time, column((s) => s.hits_per_second), column((s) => s.database_per_second)]);
  put(of.latency, [
    time,
    column((s) => positive(s.hit_p50_seconds)),
    column((s) => positive(s.hit_p99_seconds)),
    column((s) => positive(s.database_p50_seconds)),
    column((s) => positive(s.database_p99_seconds)),
  ]);
  put(of.ratio, [time, column((s) => s.hit_ratio)]);
  put(of.staleness, [time, column((s) => s.staleness_seconds), column((s) => s.staleness_max_seconds)]);
  put(of.memory, [time, column((s) => s.bytes), column((s) => s.bytes + s.overhead_bytes), column((s) => s.memory_limit_bytes)]);
}

export function drawSizes(of, memory) {
  limit = memory.limit_bytes;
  const curve = memory.size_curve;
  of.size.setData([curve.map((point) => point[0]), curve.map((point) => point[1])]);
  const now = curve.findIndex((point) => point[0] >= limit * 0.99);
  if (now >= 0 && !(of.size.cursor.left >= 0)) of.size.setLegend({ idx: now });
}

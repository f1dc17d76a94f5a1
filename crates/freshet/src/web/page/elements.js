// Elements of the page, and words for numbers.

export const $ = (id) => document.getElementById(id);

// ---- words for numbers --------------------------------------------------------------------------------------------

export const digits = (value, most) => value.toLocaleString("en", { maximumFractionDigits: most });

/** Three digits that matter. */
function short(value) {
  return digits(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds === 0) return "0 s";
  const size = Math.abs(seconds);
  if (size < 0.9995e-3) return `${short(seconds * 1e6)} µs`;
  if (size < 0.9995) return `${short(seconds * 1e3)} ms`;
  if (size < 120) return `${short(seconds)} s`;
  if (size < 7200) return `${short(seconds / 60)} min`;
  if (size < 172800) return `${short(seconds / 3600)} h`;
  return `${short(seconds / 86400)} days`;
}

export function bytes(count) {
  if (count == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = count < 1 ? 0 : Math.min(Math.floor(Math.log2(count) / 10), units.length - 1);
  return `${short(count / 1024 ** at)} ${units[at]}`;
}

export function percent(share) {
  return share == null ? "–" : `${digits(share * 100, share > 0.995 && share < 1 ? 2 : 1)}%`;
}

export function rate(value) {
  return value == null ? "–" : value >= 1e6 ? `${short(value / 1e6)} M` : value >= 1e5 ? `${short(value / 1e3)} k` : short(value);
}

export const count = (value) => (value >= 1e7 ? `${short(value / 1e6)} M` : digits(value, 0));

// ---- elements -----------------------------------------------------------------------------------------------------

/** Texts only ever become text nodes. */
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) made.setAttribute(name, value);
  made.append(...children.filter((child) => child != null));
  return made;
}

export const set = (node, text) => {
  if (node.textContent !== text) node.textContent = text;
};

export function pairs(list) {
  return list.map(([name, value]) => element("div", null, element("dt", null, name), element("dd", null, String(value))));
}

// Tables that are searched and sorted.

import { $, element } from "/elements.js";

export const ROWS_MAX = 100;

/** As it is searched. */
export const plain = (text) => (text ?? "").toLowerCase().replace(/\s+/g, " ");

/** What is said if not all that is found is shown. */
export const cut = (found, shown) => (found.length > shown.length ? `The first ${shown.length} are shown. Search or sort to see others.` : "");

/**
 * Fills the head of a table. Elements that belong to it have the prefix in their ids: `columns`, `search`, `sort`, and `by-KEY` for each column.
 * `texts`: the columns that are sorted from A to Z at first. `list`: called when the search or the order has changed.
 */
export function sortable({ prefix, columns, first, texts, list }) {
  let order = first;
  const named = (name) => $(`${prefix}${name}`);
  const sort = (key, down) => {
    order = { key, down };
    list();
  };
  const isDown = (key) => !texts.includes(key);
  for (const { key, title, later } of columns) {
    const button = element("button", { type: "button" }, title);
    button.addEventListener("click", () => sort(key, order.key === key ? !order.down : isDown(key)));
    named("columns").append(element("th", { scope: "col", id: `${prefix}by-${key}`, class: later ? "later" : "" }, button));
    named("sort").append(element("option", { value: key }, title.toLowerCase()));
  }
  named("sort").addEventListener("change", (event) => sort(event.target.value, isDown(event.target.value)));
  named("search").addEventListener("input", list);

  /** Those that match the search, in order. What has no value comes after what has one. */
  function arrange(all, matches) {
    const sought = plain(named("search").value.trim());
    const { value } = columns.find((column) => column.key === order.key);
    const found = all.filter((one) => !sought || matches(one, sought)).map((one) => ({ one, by: value(one) }));
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0) * (order.down ? -1 : 1);
    found.sort((a, b) => (a.by == null) - (b.by == null) || compare(a.by, b.by));
    for (const column of columns) {
      const head = named(`by-${column.key}`);
      if (column.key === order.key) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    named("sort").value = order.key;
    return found.map(({ one }) => one);
  }

  /** Puts the rows into the table, if they are not there already. */
  function put(table, lines) {
    const body = $(table).tBodies[0];
    if (lines.length === body.children.length && lines.every((line, at) => body.children[at] === line)) return;
    const focused = document.activeElement;
    body.replaceChildren(...lines);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }

  return { arrange, put };
}

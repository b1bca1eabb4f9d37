// Tables of entities. Rows stay in their place when the figures change, so that neither the focus
// nor the reader's place is lost.

import { count, element, text, write } from "./elements.js";

// A column: its attribute, its heading, and how a value is shown. `cell` makes the content of a
// cell once, from the entity; other cells have text, which changes.
export function column(key, label, format = text, more = {}) {
  return { key, label, format, ...more };
}

export function number(key, label, format = count) {
  return column(key, label, format, { number: true });
}

// A table with a caption. `sort` is called with the attribute of a heading that was chosen.
export function table(caption, columns, { id = "identity", sort = null } = {}) {
  const title = element("caption", {}, caption);
  const heads = columns.map((each) => head(each, sort));
  const body = element("tbody");
  const none = element("p", { class: "quiet", hidden: true }, "There are none.");
  const whole = element("table", {}, title, element("thead", {}, element("tr", {}, heads)), body);
  const region = element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, whole);
  const rows = new Map();

  function update(items, total = items.length) {
    write(title, items.length < total ? `${caption}: ${items.length} of ${total}` : `${caption}: ${total}`);
    none.hidden = items.length > 0;
    region.hidden = items.length === 0;
    const seen = new Set();
    let before = null;
    for (const item of items) {
      const key = String(item[id]);
      seen.add(key);
      let row = rows.get(key);
      if (row === undefined) {
        row = make(item, columns);
        rows.set(key, row);
      }
      row.fill(item);
      const wanted = before === null ? body.firstElementChild : before.nextElementSibling;
      if (wanted !== row.line) body.insertBefore(row.line, wanted);
      before = row.line;
    }
    for (const [key, row] of rows) {
      if (!seen.has(key)) {
        row.line.remove();
        rows.delete(key);
      }
    }
  }

  function sorted(key, descending) {
    columns.forEach((each, at) => {
      if (each.key === key) heads[at].setAttribute("aria-sort", descending ? "descending" : "ascending");
      else heads[at].removeAttribute("aria-sort");
    });
  }

  return { part: element("div", {}, region, none), update, sorted };
}

function head(each, sort) {
  const content = sort === null || each.cell !== undefined
    ? each.label
    : element("button", { type: "button", click: () => sort(each.key) }, each.label);
  return element("th", { scope: "col", class: each.number ? "number" : null }, content);
}

function make(item, columns) {
  const cells = columns.map((each, at) => {
    const cell = element(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: each.number ? "number" : null });
    if (each.cell !== undefined) cell.append(each.cell(item));
    return cell;
  });
  const line = element("tr", {}, cells);
  return {
    line,
    fill(now) {
      columns.forEach((each, at) => {
        if (each.cell === undefined) write(cells[at], each.format(now[each.key]));
      });
    },
  };
}

// Buttons that lead through a long list.
export function pager(size, change) {
  let offset = 0;
  const earlier = element("button", { type: "button", click: () => go(-size) }, "Previous page");
  const later = element("button", { type: "button", click: () => go(size) }, "Next page");
  const part = element("div", { class: "actions", hidden: true }, earlier, later);

  function go(step) {
    offset = Math.max(0, offset + step);
    change();
  }

  return {
    part,
    get query() {
      return { offset, count: size };
    },
    first() {
      offset = 0;
    },
    update(total) {
      part.hidden = total <= size && offset === 0;
      earlier.disabled = offset === 0;
      later.disabled = offset + size >= total;
    },
  };
}

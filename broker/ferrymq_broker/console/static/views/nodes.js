// Nodes: a table for each kind, and one node with its history, its figures and its settings.

import { ask, list, read, run } from "../api.js";
import { charts } from "../charts.js";
import {
  age, bytes, confirm, count, element, figures, link, message, pairs, problem, rate, route, text, write,
} from "../elements.js";
import { column, number, pager, table } from "../tables.js";

const PAGE = 100;
const KINDS = ["queue", "topic", "subscription", "stream", "exchange"];
const RATES = [number("in-rate", "in", rate), number("out-rate", "out", rate), number("oldest-age", "oldest", age)];
const COLUMNS = {
  queue: [number("available", "ready"), number("acquired", "held"), number("bytes", "size", bytes), ...RATES,
    number("consumers", "consumers"), number("producers", "producers")],
  topic: [number("subscriptions", "subscriptions"), number("messages", "messages"), ...RATES, number("producers", "producers")],
  subscription: [number("available", "ready"), number("acquired", "held"), ...RATES, number("links", "links")],
  stream: [number("records", "records"), number("bytes", "size", bytes), ...RATES,
    number("consumers", "consumers"), number("producers", "producers")],
  exchange: [column("routing", "routing"), number("bindings", "bindings"), number("published", "published"), number("unroutable", "unroutable")],
};
// Kinds with messages that can be shown, and those whose messages can be dropped.
const WITH_MESSAGES = ["queue", "subscription", "stream"];

export function show(main, chosen = "queue") {
  const kind = KINDS.includes(chosen) ? chosen : "queue";
  let order = null;
  const pages = pager(PAGE, () => shown.update().catch((error) => problem(error.message)));
  const columns = [
    column("name", kind, text, { cell: (item) => link(item.name, "node", kind, item.name) }),
    ...COLUMNS[kind],
  ];
  const nodes = table(`Nodes of the kind ${kind}`, columns, { sort });
  main.append(
    element("h1", {}, "Nodes"),
    element("nav", { "aria-label": "Kinds of nodes" }, element("ul", {}, KINDS.map((each) =>
      element("li", {}, element("a", { href: route("nodes", each), "aria-current": each === kind ? "true" : null }, `${each}s`))))),
    nodes.part, pages.part, maker(kind));

  function sort(key) {
    order = { key, descending: order?.key === key ? !order.descending : true };
    nodes.sorted(order.key, order.descending);
    pages.first();
    shown.update().catch((error) => problem(error.message));
  }

  const shown = {
    async update() {
      // Few attributes are read faster than all of them.
      const query = { ...pages.query, attributes: COLUMNS[kind].map((each) => each.key).join(",") };
      if (order !== null) query.sort = (order.descending ? "-" : "") + order.key;
      const found = await list(kind, query);
      nodes.update(found.items, found.total);
      pages.update(found.total);
    },
  };
  return shown;
}

// The form that makes a node; subscriptions are made by their topics.
function maker(kind) {
  if (kind === "subscription") return null;
  const name = element("input", { id: "new-name", required: true, maxlength: "1024" });
  const form = element("form", { class: "line", submit: make },
    element("label", { for: "new-name" }, `New ${kind}`), name,
    element("button", { type: "submit" }, "Create"));

  async function make(event) {
    event.preventDefault();
    try {
      const { description } = await ask("PUT", [kind, name.value], { body: {} });
      message(`${name.value}: ${description}`);
      location.hash = route("node", kind, name.value);
    } catch (error) {
      problem(error.message);
    }
  }

  return form;
}

const SHOWN = {
  available: ["Ready", count],
  acquired: ["Held by consumers", count],
  records: ["Records", count],
  messages: ["Messages", count],
  bytes: ["Size", bytes],
  "in-rate": ["In", rate],
  "out-rate": ["Out", rate],
  "oldest-age": ["Oldest message", age],
  consumers: ["Consumers", count],
  producers: ["Producers", count],
};

// The node at an address whose kind is not known: its own page.
export function findNode(main, name) {
  main.append(element("h1", {}, name));
  return {
    async update() {
      for (const kind of KINDS) {
        try {
          await read(kind, name);
          location.replace(route("node", kind, name));
          return;
        } catch (error) {
          if (error.status !== 404) throw error;
        }
      }
      problem(`There is no node ${name}.`);
    },
  };
}

export function showNode(main, kind, name) {
  const history = kind === "exchange" ? null : charts(kind, name);
  const shown = figures(Object.entries(SHOWN).map(([key, [label]]) => [key, label]));
  const facts = element("div");
  const links = table("Links", [
    column("identity", "link", text, { cell: (item) => link(item.name, "connection", item.connection) }),
    column("user", "user"),
    column("peer", "peer"),
    column("role", "role of the client"),
    number("unsettled", "unsettled"),
    number("credit", "credit"),
    number("rate", "rate", rate),
  ]);
  const elsewhere = element("p", { class: "quiet", hidden: true });
  const buttons = element("div", { class: "actions" },
    WITH_MESSAGES.includes(kind) ? link("Messages", "messages", kind, name) : null,
    WITH_MESSAGES.includes(kind) ? element("button", { type: "button", class: "danger", click: purge }, "Purge") : null,
    element("button", { type: "button", class: "danger", click: remove }, "Delete"));
  main.append(element("h1", {}, `${kind} ${name}`), buttons, shown.list, history?.part ?? "",
    element("h2", {}, "Who holds messages"), links.part, elsewhere,
    element("h2", {}, "Attributes"), facts);
  let before = "";

  async function purge() {
    if (!(await confirm(`Drop the messages of ${name} that no consumer holds?`, "Purge"))) return;
    await done(async () => {
      const { value } = await run(kind, name, "purge");
      message(`${count(value.count)} messages dropped.`);
      await view.update();
    });
  }

  async function remove() {
    if (!(await confirm(`Delete ${kind} ${name} with its messages?`, "Delete"))) return;
    await done(async () => {
      const { description } = await ask("DELETE", [kind, name]);
      location.hash = route("nodes", kind);
      setTimeout(() => message(`${name}: ${description}`));
    });
  }

  const view = {
    async update() {
      const node = await read(kind, name);
      for (const part of shown.list.children) part.hidden = false;
      [...shown.list.children].forEach((part, at) => {
        part.hidden = !(Object.keys(SHOWN)[at] in node);
      });
      shown.update(Object.fromEntries(Object.entries(SHOWN)
        .filter(([key]) => key in node)
        .map(([key, [, format]]) => [key, format(node[key])])));
      const rest = Object.entries(node).filter(([key]) => !(key in SHOWN));
      const now = JSON.stringify(rest);
      if (now !== before) {
        before = now;
        facts.replaceChildren(pairs(rest.map(([key, value]) => [key, text(value)])));
      }
      const { value } = await run(kind, name, "list-links");
      links.update(value.links, value.total);
      elsewhere.hidden = !value.elsewhere;
      write(elsewhere, `${count(value.elsewhere)} messages are held by no link.`);
      await history?.update(node);
    },
    close: () => history?.close(),
  };
  return view;
}

async function done(work) {
  try {
    await work();
  } catch (error) {
    problem(error.message);
  }
}

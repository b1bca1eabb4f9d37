// Connections, and one connection with its links: what they hold, and how much more they may get.

import { ask, list, read } from "../api.js";
import { confirm, count, element, link, message, moment, pairs, problem, rate, route, text } from "../elements.js";
import { column, number, pager, table } from "../tables.js";

const PAGE = 100;
const LINKS = [
  column("name", "link"),
  column("role", "role of the client"),
  column("address", "address", text, { cell: (item) => item.address ? link(item.address, "address", item.address) : "–" }),
  number("unsettled", "unsettled"),
  number("credit", "credit"),
  number("delivery-count", "deliveries"),
  number("rate", "rate", rate),
];

export function show(main) {
  const pages = pager(PAGE, () => view.update().catch((error) => problem(error.message)));
  const connections = table("Connections", [
    column("identity", "connection", text, { cell: (item) => link(`${item.identity} ${text(item["container-id"])}`, "connection", item.identity) }),
    column("peer", "peer"),
    column("user", "user"),
    column("protocol", "protocol"),
    column("mechanism", "login"),
    column("tls-version", "TLS"),
    number("links", "links"),
    number("unsettled", "unsettled"),
    number("received-rate", "in", rate),
    number("sent-rate", "out", rate),
    column("since", "since", moment),
  ]);
  main.append(element("h1", {}, "Connections"), connections.part, pages.part);
  const view = {
    async update() {
      const found = await list("connection", pages.query);
      connections.update(found.items, found.total);
      pages.update(found.total);
    },
  };
  return view;
}

export function showConnection(main, id) {
  const facts = element("div");
  const links = table("Links", [...LINKS,
    column("end", "action", text, { cell: (item) => element("button", { type: "button", class: "danger", click: () => detach(item) }, "Detach", element("span", { class: "aside" }, ` ${item.name}`)) }),
  ]);
  main.append(element("h1", {}, `Connection ${id}`),
    element("div", { class: "actions" },
      link("Trace its frames", "trace", id),
      element("button", { type: "button", class: "danger", click: close }, "Close the connection")),
    element("h2", {}, "Links"), links.part,
    element("h2", {}, "Attributes"), facts);
  let before = "";

  async function close() {
    if (!(await confirm(`Close connection ${id}? Its client gets an error.`, "Close"))) return;
    try {
      await ask("DELETE", ["connection", id], { query: { reason: "closed in the console" } });
      location.hash = route("connections");
      setTimeout(() => message(`Connection ${id} is closed.`));
    } catch (error) {
      problem(error.message);
    }
  }

  async function detach(item) {
    if (!(await confirm(`Detach the link ${item.name}? Messages that it holds go back.`, "Detach"))) return;
    try {
      await ask("DELETE", ["link", item.identity], { query: { reason: "detached in the console" } });
      message(`The link ${item.name} is detached.`);
      await view.update();
    } catch (error) {
      problem(error.message);
    }
  }

  const view = {
    async update() {
      const connection = await read("connection", id);
      const now = JSON.stringify(connection);
      if (now !== before) {
        before = now;
        facts.replaceChildren(pairs(Object.entries(connection).map(([key, value]) => [key, key === "since" ? moment(value) : count(value)])));
      }
      const found = [];
      for (;;) {
        const page = await list("link", { count: 1000, offset: found.length });
        found.push(...page.items);
        if (page.items.length === 0 || found.length >= page.total) break;
      }
      links.update(found.filter((each) => each.connection === id));
    },
  };
  return view;
}

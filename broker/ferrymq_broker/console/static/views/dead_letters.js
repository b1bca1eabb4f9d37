// Dead letters: the queues that have them, by reason, and how they go back.

import { list, run } from "../api.js";
import { confirm, count, element, link, message, moment, problem } from "../elements.js";
import { column, number, table } from "../tables.js";
import { row } from "./messages.js";

// Messages that are looked at for their reasons, and those that are shown.
const MOST = 1000;
const SHOWN = 50;

export function show(main, address = "") {
  return address ? showQueue(main, address) : showQueues(main);
}

function showQueues(main) {
  const queues = table("Queues for dead letters", [
    column("name", "queue", count, { cell: (item) => link(item.name, "dead-letters", item.name) }),
    number("available", "messages"),
    column("from", "from"),
  ]);
  main.append(element("h1", {}, "Dead letters"), queues.part);
  return {
    async update() {
      const [all, subscriptions] = await Promise.all([everything("queue"), everything("subscription")]);
      const from = new Map();
      for (const each of [...all, ...subscriptions]) {
        for (const key of ["dead-letter", "expired", "forward-failed"]) {
          const target = each[key]?.startsWith("/") ? each.name + each[key] : each[key];
          if (target) from.set(target, (from.get(target) ?? new Set()).add(each.name));
        }
      }
      queues.update(all.filter((each) => from.has(each.name))
        .map((each) => ({ ...each, from: [...from.get(each.name)].join(", ") })));
    },
  };
}

async function everything(kind) {
  const query = { count: 1000, attributes: "available,dead-letter,expired,forward-failed" };
  const found = [];
  for (;;) {
    const page = await list(kind, { ...query, offset: found.length });
    found.push(...page.items);
    if (page.items.length === 0 || found.length >= page.total) return found;
  }
}

function showQueue(main, address) {
  const reasons = table("By reason", [
    column("reason", "reason"),
    column("source", "queue of the death"),
    number("messages", "messages"),
    column("last", "last death", moment),
    column("again", "action", count, { cell: (item) => buttons(item) }),
  ], { id: "key" });
  const said = element("p", { class: "quiet", role: "status" });
  const rows = element("ol", { class: "messages", "aria-label": "Messages" });
  main.append(element("h1", {}, `Dead letters in ${address}`),
    element("p", {}, link(`queue ${address}`, "node", "queue", address)),
    reasons.part, element("h2", {}, "Messages"), said, rows);

  function buttons(item) {
    const about = () => element("span", { class: "aside" }, ` ${item.reason} of ${item.source}`);
    return element("div", { class: "actions" },
      element("button", { type: "button", click: () => change(item, "requeue", "Re-queue") }, "Re-queue", about()),
      element("button", { type: "button", class: "danger", click: () => change(item, "remove", "Remove") }, "Remove", about()));
  }

  // Change all dead letters of a reason and a queue, also those that are not shown.
  async function change(item, operation, verb) {
    const chosen = { reason: item.reason, source: item.source };
    try {
      const { value: would } = await run("queue", address, operation, { ...chosen, "dry-run": true });
      const what = `${count(would.count)} dead letters (${item.reason})`;
      const question = operation === "requeue" ? `Send ${what} back to ${item.source}?` : `Drop ${what} of ${item.source}?`;
      if (!(await confirm(question, verb))) return;
      const { value, description } = await run("queue", address, operation, chosen);
      message(`${description}.${value.refused ? ` Not all: ${value.refused}` : ""}`);
      await update();
    } catch (error) {
      problem(error.message);
    }
  }

  async function update() {
    const { value } = await run("queue", address, "peek", { count: MOST });
    const groups = new Map();
    for (const each of value.messages) {
      const death = each["dead-letter"] ?? {};
      const [reason, source] = [death.reason ?? "none", death.source ?? "–"];
      const key = `${reason}\n${source}`;
      const group = groups.get(key) ?? { key, reason, source, messages: 0, last: "" };
      group.messages += 1;
      group.last = [group.last, death.time ?? ""].sort().at(-1);
      groups.set(key, group);
    }
    reasons.update([...groups.values()]);
    said.textContent = value.messages.length === 0 ? "There are no dead letters." : `The first ${value.messages.length}.`;
    const open = rows.querySelector("details[open]");
    if (open === null) rows.replaceChildren(...value.messages.slice(0, SHOWN).map((each) => element("li", {}, row(each))));
  }

  return { update };
}

// Dead letters: the queues that have them, by reason, and how they go back.

import { list, run } from "../api.js";
import { confirm, count, element, link, message, moment, problem } from "../elements.js";
import { column, number, table } from "../tables.js";
import { row } from "./messages.js";

const MOST = 1000;
const REASON = "x-opt-deadletter-reason";
const SOURCE = "x-opt-deadletter-source";
const TIME = "x-opt-deadletter-time";

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
    column("again", "action", count, { cell: (item) => requeueButton(item) }),
  ], { id: "key" });
  const said = element("p", { class: "quiet", role: "status" });
  const rows = element("ol", { class: "messages", "aria-label": "Messages" });
  main.append(element("h1", {}, `Dead letters in ${address}`),
    element("p", {}, link(`queue ${address}`, "node", "queue", address)),
    reasons.part, element("h2", {}, "Messages"), said, rows);

  function requeueButton(item) {
    return element("button", { type: "button", click: () => requeue(item) }, "Re-queue",
      element("span", { class: "aside" }, ` ${item.reason} of ${item.source}`));
  }

  async function requeue(item) {
    if (!(await confirm(`Move ${count(item.messages)} dead letters (${item.reason}) back to ${item.source}?`, "Re-queue"))) return;
    try {
      const { value } = await run("queue", address, "move", { target: item.source, count: item.messages });
      message(`${count(value.count)} messages moved to ${item.source}.`
        + (value.refused ? ` It refused one: ${value.refused}` : ""));
      await update();
    } catch (error) {
      problem(error.message);
    }
  }

  async function update() {
    const { value } = await run("queue", address, "peek", { count: MOST });
    const groups = new Map();
    for (const each of value.messages) {
      const death = annotations(each);
      const [reason, source] = [death[REASON] ?? "–", death[SOURCE] ?? "–"];
      const key = `${reason}\n${source}`;
      const group = groups.get(key) ?? { key, reason, source, messages: 0, last: "" };
      group.messages += 1;
      group.last = [group.last, death[TIME] ?? ""].sort().at(-1);
      groups.set(key, group);
    }
    reasons.update([...groups.values()]);
    said.textContent = value.messages.length === 0 ? "There are no dead letters." : `The first ${value.messages.length}.`;
    const open = rows.querySelector("details[open]");
    if (open === null) rows.replaceChildren(...value.messages.slice(0, 50).map((each) => element("li", {}, row(each))));
  }

  return { update };
}

function annotations(found) {
  return found.message.find((each) => each.section === "message-annotations")?.value ?? {};
}

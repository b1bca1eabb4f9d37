// The broker: alarms, figures, rates, and the virtual host.

import { list, read, types } from "../api.js";
import { charts } from "../charts.js";
import { age, bytes, count, element, figures, rate, text } from "../elements.js";
import { column, number, table } from "../tables.js";

const FIGURES = [
  ["in-rate", "Messages in"],
  ["out-rate", "Messages out"],
  ["oldest-age", "Oldest message"],
  ["connections", "Connections"],
  ["links", "Links"],
  ["held-bytes", "Messages in memory"],
  ["connections-opened", "Connections opened"],
  ["logins-refused", "Logins refused"],
  ["links-refused", "Links refused"],
  ["bytes-received", "Received"],
  ["bytes-sent", "Sent"],
  ["version", "Version"],
];

const CLUSTER = [
  ["role", "This broker"],
  ["leader", "Leader"],
  ["term", "Term"],
  ["lease-seconds", "Lease ends in"],
  ["journal-bytes", "Journal"],
  ["snapshot-bytes", "Snapshots"],
];

export function show(main) {
  const alarms = element("div", { id: "alarms", role: "status" });
  const shown = figures(FIGURES);
  const history = charts("broker", "broker");
  const hosts = table("Virtual hosts", [
    column("name", "virtual host"),
    number("connections", "connections"),
    number("in-rate", "in", rate),
    number("out-rate", "out", rate),
    number("oldest-age", "oldest message", age),
    column("nodes", "nodes", kinds),
  ]);
  const cluster = replication();
  main.append(element("h1", {}, "Overview"), alarms, shown.list, cluster.part, history.part,
    element("h2", {}, "This virtual host"), hosts.part);
  let said = null;
  return {
    async update() {
      const broker = await read("broker", "broker");
      const now = broker.alarms.join(", ");
      const missing = broker["missing-workers"].join(", ");
      if (`${now}/${missing}` !== said) {
        said = `${now}/${missing}`;
        alarms.replaceChildren(now
          ? element("p", { class: "problem" }, `Alarm: ${now}. Producers wait until it ends.`)
          : element("p", { class: "good" }, "No alarms."));
        if (missing) {
          alarms.append(element("p", { class: "problem" },
            `No answer from worker ${missing}. Its part is missing in the figures.`));
        }
      }
      shown.update({
        "in-rate": rate(broker["in-rate"]),
        "out-rate": rate(broker["out-rate"]),
        "oldest-age": age(broker["oldest-age"]),
        connections: count(broker.connections),
        links: count(broker.links),
        "held-bytes": bytes(broker["held-bytes"]),
        "connections-opened": count(broker["connections-opened"]),
        "logins-refused": count(broker["logins-refused"]),
        "links-refused": count(broker["links-refused"]),
        "bytes-received": bytes(broker["bytes-received"]),
        "bytes-sent": bytes(broker["bytes-sent"]),
        version: text(broker.version),
      });
      await cluster.update();
      hosts.update((await list("virtual-host")).items);
      await history.update(broker);
    },
    close: history.close,
  };
}

// The members of the cluster; nothing is shown of a broker that is in none.
function replication() {
  const part = element("div", {});
  const shown = figures(CLUSTER);
  const members = table("Members", [
    column("name", "member"),
    column("role", "role"),
    column("address", "address"),
    number("applied-batch", "batch"),
    column("version", "version"),
    number("seen-seconds", "seen", age),
  ]);
  let isMember = null;
  return {
    part,
    async update() {
      isMember ??= "replication" in (await types());
      if (!isMember) return;
      const found = await read("replication", "replication");
      if (!part.firstChild) {
        part.append(element("h2", {}, "Cluster"), shown.list, members.part);
      }
      shown.update({
        role: text(found.role),
        leader: text(found.leader || "–"),
        term: count(found.term),
        "lease-seconds": `${count(Math.max(0, Math.round(found["lease-seconds"])))} s`,
        "journal-bytes": bytes(found["journal-bytes"]),
        "snapshot-bytes": bytes(found["snapshot-bytes"]),
      });
      members.update(found.members);
    },
  };
}

function kinds(nodes) {
  return Object.entries(nodes ?? {}).map(([kind, many]) => `${many} ${kind}`).join(", ") || "–";
}

// The messages in a queue, a subscription or a stream, with their sections. Looking changes nothing.

import { run } from "../api.js";
import { bytes, count, element, link, moment, pairs, problem, text } from "../elements.js";

export function show(main, kind, name) {
  const isStream = kind === "stream";
  const from = element("input", { id: "from", type: "number", min: "0", value: "0" });
  const many = element("input", { id: "count", type: "number", min: "1", max: "1000", value: "20" });
  const partition = element("input", { id: "partition", type: "number", min: "0", value: "0" });
  const rows = element("ol", { class: "messages", "aria-label": "Messages" });
  const said = element("p", { class: "quiet", role: "status" });
  const later = element("button", { type: "button", hidden: true, click: next }, "Following messages");
  let last = 0;
  main.append(
    element("h1", {}, `Messages of ${name}`),
    element("p", {}, link(`${kind} ${name}`, "node", kind, name)),
    element("form", { class: "line", submit: look },
      isStream ? [element("label", { for: "partition" }, "Partition"), partition] : [],
      element("label", { for: "from" }, isStream ? "From offset" : "From sequence"), from,
      element("label", { for: "count" }, "Count"), many,
      element("button", { type: "submit" }, "Show")),
    element("h2", { class: "aside" }, "Messages"), said, rows, later);

  async function look(event) {
    event?.preventDefault();
    const body = { count: Number(many.value) };
    if (isStream) Object.assign(body, { partition: Number(partition.value), "from-offset": Number(from.value) });
    else body["from-sequence"] = Number(from.value);
    const { value } = await run(kind, name, "peek", body);
    const found = value.messages;
    rows.replaceChildren(...found.map((each) => element("li", {}, row(each))));
    said.textContent = found.length === 0 ? "There are no messages." : `${found.length} messages.`;
    later.hidden = found.length < body.count;
    if (found.length) last = found.at(-1)[isStream ? "offset" : "sequence"];
  }

  function next() {
    from.value = String(last + 1);
    look().then(() => rows.querySelector("summary")?.focus(), (error) => problem(error.message));
  }

  // A list that is read does not change by itself.
  let read = false;
  return {
    async update() {
      if (read) return;
      read = true;
      await look();
    },
  };
}

// One message: a line that opens.
export function row(found) {
  const { message: sections, ...facts } = found;
  const properties = sections.find((each) => each.section === "properties")?.value ?? {};
  const words = [
    `#${found.sequence ?? found.offset}`,
    found.state === "available" ? null : found.state,
    bytes(found.size),
    properties.subject === undefined ? null : `subject ${properties.subject}`,
    properties["message-id"] === undefined ? null : `id ${text(properties["message-id"])}`,
  ].filter((word) => word !== null && word !== undefined);
  return element("details", {}, element("summary", {}, words.join(" · ")),
    element("div", {},
      pairs(Object.entries(facts).map(([key, value]) => [key, format(key, value)])),
      sections.map(section)));
}

function format(key, value) {
  return ["expires", "locked-until", "time", "due"].includes(key) ? moment(value) : count(value);
}

function section(each) {
  const title = element("h3", {}, each.section || "unreadable");
  if (each.error !== undefined) return element("section", {}, title, element("p", { class: "problem" }, each.error));
  const value = each.value;
  const isMap = typeof value === "object" && value !== null && !Array.isArray(value);
  const isBinary = isMap && Object.keys(value).length === 1 && typeof value.base64 === "string";
  let content;
  if (isMap && !isBinary && !["amqp-value", "data"].includes(each.section)) {
    content = pairs(Object.entries(value).map(([key, item]) => [key, text(item)]));
  } else {
    content = element("pre", { tabindex: "0" }, isBinary ? dump(value.base64) : pretty(value));
  }
  return element("section", {}, title, content);
}

// Text as it is, and JSON with its lines.
function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    const parsed = JSON.parse(value);
    return typeof parsed === "object" && parsed !== null ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}

// Binary as lines of sixteen bytes.
function dump(base64) {
  const data = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < Math.min(data.length, 4096); at += 16) {
    const piece = [...data.slice(at, at + 16)];
    const hex = piece.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const shown = piece.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${shown}`);
  }
  if (data.length > 4096) lines.push(`… ${data.length} bytes`);
  return lines.join("\n");
}

// The frames of one connection, while they pass.

import { run } from "../api.js";
import { bytes, element, link, write } from "../elements.js";

const MOST_LINES = 2000;
const PERIOD = 1000;

export function show(main, id) {
  const lines = [];
  const said = element("p", { class: "quiet", role: "status" }, "Waiting for frames.");
  const filter = element("input", { id: "filter", type: "search", input: draw });
  const shown = element("pre", { class: "trace", role: "log", "aria-live": "off", "aria-label": "Frames", tabindex: "0" });
  const toggle = element("button", { type: "button", "aria-pressed": "false", click: stop }, "Stop");
  main.append(element("h1", {}, `Frames of connection ${id}`),
    element("p", {}, link(`connection ${id}`, "connection", id), ": -> is from the client, <- from the broker. Bodies and secrets are not shown."),
    element("form", { class: "line", submit: (event) => event.preventDefault() },
      toggle,
      element("button", { type: "button", click: clear }, "Clear"),
      element("label", { for: "filter" }, "Only lines with"), filter),
    said, shown);
  let trace = "";
  let stopped = false;
  let dropped = 0;

  function stop() {
    stopped = !stopped;
    toggle.setAttribute("aria-pressed", String(stopped));
  }

  function clear() {
    lines.length = 0;
    draw();
  }

  function draw() {
    const wanted = filter.value;
    const found = wanted ? lines.filter((line) => line.includes(wanted)) : lines;
    const atEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 40;
    shown.textContent = found.join("\n");
    if (atEnd) shown.scrollTop = shown.scrollHeight;
    write(said, `${lines.length} frames` + (dropped ? `; ${bytes(dropped)} passed too fast to be shown` : "") + ".");
  }

  return {
    period: PERIOD,
    async update() {
      if (stopped) return;
      try {
        const { value } = await run("connection", id, "trace", trace ? { trace } : {});
        trace = value.trace;
        dropped += value.dropped;
        if (value.lines.length === 0) return;
        lines.push(...value.lines);
        lines.splice(0, lines.length - MOST_LINES);
        draw();
      } catch (error) {
        if (error.status === 404 && trace === "") {
          stopped = toggle.disabled = true;
          write(said, `${lines.length} frames. The connection has ended.`);
          return;
        }
        // The next request begins another trace.
        trace = "";
        throw error;
      }
    },
  };
}

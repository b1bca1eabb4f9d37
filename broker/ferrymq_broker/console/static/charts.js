// Charts of the history of an entity, with uPlot. Each figure also says its last values in words,
// and has them as a table.

import { run } from "./api.js";
import { age, count, element, problem, rate, write } from "./elements.js";

const SPANS = [["600", "10 minutes"], ["3600", "1 hour"], ["86400", "1 day"]];
const SERIES = {
  "in-rate": ["in", "--in", rate],
  "out-rate": ["out", "--out", rate],
  messages: ["messages", "--in", count],
  "oldest-age": ["oldest message", "--out", age],
};
const HEIGHT = 180;
const LAST = 10;

let loading = null;

// Load uPlot; resolves to null where the broker has no charts.
function library() {
  loading ??= new Promise((resolve) => {
    const style = element("link", { rel: "stylesheet", href: "vendor/uplot.css" });
    const script = element("script", { src: "vendor/uplot.js" });
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => resolve(null);
    document.head.append(style, script);
  });
  return loading;
}

// The charts of an entity. `update` reads the history again, if the entity has rates; `close` frees
// what the charts hold.
export function charts(type, name) {
  const id = `span-${type}`;
  const span = element("select", { id, change: () => update(shown).catch((error) => problem(error.message)) },
    SPANS.map(([value, label]) => element("option", { value }, label)));
  const figures = [
    figure("Messages per second", ["in-rate", "out-rate"]),
    figure("Messages", ["messages"]),
    figure("Age of the oldest message", ["oldest-age"]),
  ];
  const note = element("p", { class: "quiet", hidden: true });
  const plots = element("div", { class: "charts" }, figures.map((each) => each.part));
  const choice = element("form", { class: "line", submit: (event) => event.preventDefault() },
    element("label", { for: id }, "History of the last"), span);
  const part = element("section", { "aria-label": "History" }, choice, note, plots);
  let shown = {};

  async function update(entity) {
    shown = entity;
    const has = typeof entity["in-rate"] === "number";
    plots.hidden = choice.hidden = !has;
    note.hidden = has;
    if (!has) {
      write(note, "The broker keeps no history.");
      return;
    }
    const { value } = await run(type, name, "history", { seconds: Number(span.value) });
    const plot = await library();
    note.hidden = plot !== null;
    if (plot === null) write(note, "There are no charts: the broker lacks the extra “console”.");
    for (const each of figures) each.update(value, plot);
  }

  return { part, update, close: () => figures.forEach((each) => each.close()) };
}

function figure(title, keys) {
  const said = element("span", { class: "quiet" });
  const plot = element("div", { class: "plot", "aria-hidden": "true" });
  const rows = element("tbody");
  const heads = [element("th", { scope: "col" }, "time")];
  for (const key of keys) heads.push(element("th", { scope: "col", class: "number" }, SERIES[key][0]));
  const values = element("details", {}, element("summary", {}, `${title}: the last values`),
    element("table", {}, element("thead", {}, element("tr", {}, heads)), rows));
  const part = element("figure", {},
    element("figcaption", {}, element("strong", {}, title), " ", said), plot, values);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const watch = new ResizeObserver(() => chart?.setSize({ width: plot.clientWidth, height: HEIGHT }));
  let chart = null;
  let data = [];

  const redraw = () => {
    chart?.destroy();
    chart = null;
  };
  scheme.addEventListener("change", redraw);
  watch.observe(plot);

  function update(history, Plot) {
    const length = history[keys[0]].length;
    const end = history.end === null ? 0 : Date.parse(history.end) / 1000;
    const times = Array.from({ length }, (_, at) => end - (length - 1 - at) * history.interval);
    data = [times, ...keys.map((key) => history[key])];
    write(said, summary(history, keys));
    rows.replaceChildren(...lastRows(times, history, keys));
    if (Plot === null) return;
    if (chart === null) chart = new Plot(options(keys, plot.clientWidth), data, plot);
    else chart.setData(data);
  }

  return {
    part,
    update,
    close() {
      scheme.removeEventListener("change", redraw);
      watch.disconnect();
      redraw();
    },
  };
}

function summary(history, keys) {
  const words = keys.map((key) => {
    const values = history[key];
    if (values.length === 0) return `${SERIES[key][0]}: no samples yet`;
    const [label, , format] = SERIES[key];
    return `${label}: ${format(values.at(-1))}, at most ${format(Math.max(...values))}`;
  });
  return words.join("; ");
}

function lastRows(times, history, keys) {
  return times.slice(-LAST).map((time, at) => {
    const from = Math.max(0, times.length - LAST) + at;
    return element("tr", {}, element("th", { scope: "row" }, clock(time)),
      keys.map((key) => element("td", { class: "number" }, SERIES[key][2](history[key][from]))));
  });
}

function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

function options(keys, width) {
  const style = getComputedStyle(document.documentElement);
  // The canvas knows no light-dark(), so a real element computes the colours.
  const probe = document.body.appendChild(element("span"));
  const colour = (name) => {
    probe.className = "";
    probe.style.color = style.getPropertyValue(name);
    return getComputedStyle(probe).color;
  };
  const line = colour("--line");
  const quiet = colour("--quiet");
  const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
  const found = {
    width: width || 300,
    height: HEIGHT,
    cursor: { show: false },
    legend: { show: keys.length > 1, live: false },
    axes: [{ ...axis, space: 80, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 60, values: (_, ticks) => ticks.map((tick) => keys[0] === "oldest-age" ? age(tick) : count(tick)) }],
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    series: [{}, ...keys.map((key) => ({
      label: SERIES[key][0],
      stroke: colour(SERIES[key][1]),
      width: 2,
      points: { show: false },
      dash: key === "out-rate" ? [6, 3] : undefined,
    }))],
  };
  probe.remove();
  return found;
}

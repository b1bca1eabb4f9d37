// Elements of the page. Text from the broker only ever becomes text, never markup.

// Make an element. Attributes whose value is a function are listeners; null and false are left out.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// Write a text, but only if it is another one: a screen reader would read it again.
export function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function link(text, ...path) {
  return element("a", { href: route(...path) }, text);
}

// The address of a view.
export function route(...path) {
  return "#/" + path.map((part) => encodeURIComponent(part)).join("/");
}

// A list of terms and their values, which `update` changes.
export function figures(names) {
  const values = new Map();
  const list = element("dl", { class: "figures" });
  for (const [key, label] of names) {
    const value = element("dd", {}, "–");
    values.set(key, value);
    list.append(element("div", {}, element("dt", {}, label), value));
  }
  return {
    list,
    update(texts) {
      for (const [key, text] of Object.entries(texts)) {
        if (values.has(key)) write(values.get(key), text);
      }
    },
  };
}

export function pairs(entries) {
  return element("dl", { class: "pairs" },
    ...entries.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

export function message(text) {
  document.getElementById("status").replaceChildren(element("p", {}, text));
}

export function problem(text) {
  document.getElementById("status").replaceChildren(element("p", { class: "problem" }, text));
}

// Ask before something is lost. Resolves to whether the answer is yes.
export function confirm(question, verb) {
  const dialog = document.getElementById("confirm");
  const yes = document.getElementById("yes");
  const no = document.getElementById("no");
  document.getElementById("question").textContent = question;
  yes.textContent = verb;
  return new Promise((resolve) => {
    const close = (answer) => {
      dialog.close();
      resolve(answer);
    };
    yes.onclick = () => close(true);
    no.onclick = () => close(false);
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
    no.focus();
  });
}

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(value) {
  return typeof value === "number" ? number.format(value) : text(value);
}

export function rate(value) {
  return typeof value === "number" ? `${number.format(value)}/s` : "–";
}

export function bytes(value) {
  if (typeof value !== "number") return text(value);
  for (const unit of ["bytes", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${number.format(value)} ${unit}`;
    value /= 1024;
  }
  return `${number.format(value)} TiB`;
}

// Seconds as a duration.
export function age(seconds) {
  if (typeof seconds !== "number") return "–";
  if (seconds < 120) return `${number.format(seconds)} s`;
  if (seconds < 7200) return `${number.format(seconds / 60)} min`;
  if (seconds < 172800) return `${number.format(seconds / 3600)} h`;
  return `${number.format(seconds / 86400)} d`;
}

export function moment(value) {
  if (typeof value !== "string") return text(value);
  const date = new Date(value);
  return Number.isNaN(date.valueOf()) ? value : date.toLocaleString("en-GB");
}

// Any JSON value as text.
export function text(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.length ? value.map(text).join(", ") : "–";
  return JSON.stringify(value);
}

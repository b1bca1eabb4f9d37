// The console: the login, the virtual host, and the view that the address names. Each view is a
// module with `show`, which fills the page and returns how it is brought up to date.

import { Problem, ask, isLoggedIn, logIn, logInWithToken, logOut, place } from "./api.js";
import { element, problem } from "./elements.js";
import * as access from "./views/access.js";
import * as configuration from "./views/configuration.js";
import * as connections from "./views/connections.js";
import * as deadLetters from "./views/dead_letters.js";
import * as messages from "./views/messages.js";
import * as nodes from "./views/nodes.js";
import * as overview from "./views/overview.js";
import * as trace from "./views/trace.js";

const PERIOD = 5000;
const VIEWS = {
  overview,
  nodes,
  node: { show: nodes.showNode, of: "nodes" },
  address: { show: nodes.findNode, of: "nodes" },
  messages: { show: messages.show, of: "nodes" },
  "dead-letters": deadLetters,
  connections,
  connection: { show: connections.showConnection, of: "connections" },
  trace: { show: trace.show, of: "connections" },
  access,
  configuration,
};

const main = document.getElementById("main");
const pause = document.getElementById("pause");
const host = document.getElementById("host");
let current = null;
let timer = null;

async function start() {
  place.host = host.value;
  try {
    const who = (await ask("GET", ["whoami"])).value;
    fillPlace(who);
  } catch (error) {
    if (error.status === 401) showLogin(isLoggedIn() ? "The broker refused this login." : "");
    else problem(error.message);
    return;
  }
  await go();
}

function fillPlace(who) {
  const names = who["virtual-hosts"].length ? who["virtual-hosts"] : [who["virtual-host"]];
  const chosen = names.includes(host.value) ? host.value : who["virtual-host"];
  host.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  host.value = names.includes(chosen) ? chosen : names[0];
  place.host = host.value;
  document.getElementById("place").hidden = false;
  document.getElementById("views").hidden = false;
  document.getElementById("user").textContent = who.user === null ? "no login" : who.user;
  document.getElementById("log-out").hidden = !isLoggedIn();
}

function showLogin(reason) {
  close();
  document.getElementById("place").hidden = true;
  document.getElementById("views").hidden = true;
  document.title = "Log in – ferrymq";
  const page = document.getElementById("login").content.cloneNode(true);
  const [byName, byToken] = page.querySelectorAll("form");
  const said = page.querySelector(".problem");
  said.hidden = reason === "";
  said.textContent = reason;
  byName.addEventListener("submit", (event) => {
    event.preventDefault();
    logIn(byName.elements.name.value, byName.elements.password.value);
    start();
  });
  byToken.addEventListener("submit", (event) => {
    event.preventDefault();
    logInWithToken(byToken.elements.token.value);
    start();
  });
  main.replaceChildren(page);
  document.getElementById(reason ? "password" : "name").focus();
}

function close() {
  clearTimeout(timer);
  current?.close?.();
  current = null;
}

// Show the view of the address.
async function go() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const view = VIEWS[name] ?? overview;
  close();
  document.getElementById("status").replaceChildren();
  const of = view.of ?? (VIEWS[name] ? name : "overview");
  for (const each of document.querySelectorAll("nav a")) {
    if (each.getAttribute("href") === `#/${of}`) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  main.replaceChildren();
  const shown = view.show(main, ...rest);
  current = shown;
  const title = main.querySelector("h1");
  document.title = `${title.textContent} – ferrymq`;
  title.tabIndex = -1;
  title.focus();
  main.setAttribute("aria-busy", "true");
  await update(shown);
  main.removeAttribute("aria-busy");
}

async function update(shown) {
  clearTimeout(timer);
  try {
    await shown.update?.();
  } catch (error) {
    if (shown !== current) return;
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) {
      showLogin("The login has ended.");
      return;
    }
    problem(error.message);
  }
  if (shown === current && !isPaused()) timer = setTimeout(() => update(shown), shown.period ?? PERIOD);
}

function isPaused() {
  return pause.getAttribute("aria-pressed") === "true";
}

pause.addEventListener("click", () => {
  pause.setAttribute("aria-pressed", String(!isPaused()));
  if (current !== null) update(current);
});
host.addEventListener("change", () => {
  place.host = host.value;
  location.hash = "#/overview";
  go();
});
document.getElementById("log-out").addEventListener("click", () => {
  logOut();
  start();
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  if (current !== null) go();
});
start();

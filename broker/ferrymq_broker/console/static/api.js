// The management API. The login is kept for this tab alone, and sent in a field that no other page
// can send: there are no cookies.

const BASE = new URL("../management/v1/", document.baseURI);
const KEPT = "ferrymq.authorization";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const place = { host: "" };

export function logIn(name, password) {
  const bytes = new TextEncoder().encode(`${name}:${password}`);
  sessionStorage.setItem(KEPT, "Basic " + btoa(String.fromCharCode(...bytes)));
}

export function logInWithToken(token) {
  sessionStorage.setItem(KEPT, `Bearer ${token.trim()}`);
}

export function logOut() {
  sessionStorage.removeItem(KEPT);
}

export function isLoggedIn() {
  return sessionStorage.getItem(KEPT) !== null;
}

// Send a request. `path` are the parts of the path, `query` and `body` the arguments. Throws a
// Problem.
export async function ask(method, path, { query = {}, body } = {}) {
  const url = new URL(path.map(encodeURIComponent).join("/"), BASE);
  for (const [key, value] of Object.entries(query)) url.searchParams.set(key, value);
  if (place.host) url.searchParams.set("virtual-host", place.host);
  const headers = {};
  const kept = sessionStorage.getItem(KEPT);
  if (kept !== null) headers.Authorization = kept;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
  } catch {
    throw new Problem(0, "The broker does not answer.");
  }
  const text = await response.text();
  const isJson = (response.headers.get("Content-Type") ?? "").includes("json");
  const value = isJson && text ? JSON.parse(text) : text;
  if (!response.ok) throw new Problem(response.status, value.detail ?? (text || response.statusText));
  const description = decodeURIComponent(response.headers.get("Status-Description") ?? "");
  return { value, description };
}

export async function read(type, name) {
  return (await ask("GET", [type, name])).value;
}

export async function list(type, query = {}) {
  return (await ask("GET", [type], { query })).value;
}

export async function run(type, name, operation, body = {}) {
  return ask("POST", [type, name, operation], { body });
}

// The types of the broker with their attributes and operations.
export async function types() {
  return (await ask("GET", [])).value.types;
}

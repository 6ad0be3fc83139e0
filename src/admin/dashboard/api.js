// Questions to the process that serves this page. The token stays in this tab.

const KEPT = "oncebox-token";

export function token(value) {
  if (value !== undefined) value ? sessionStorage.setItem(KEPT, value) : sessionStorage.removeItem(KEPT);
  return sessionStorage.getItem(KEPT);
}

export class Refused extends Error {
  constructor(status, { code, message }) {
    super(message);
    Object.assign(this, { status, code });
  }
}

async function call(method, path, body) {
  const headers = {};
  if (token()) headers.authorization = `Bearer ${token()}`;
  if (method !== "GET") headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: method === "GET" ? undefined : JSON.stringify(body ?? {}) });
  if (answer.status === 204) return null;
  const read = await answer.json().catch(() => ({ error: { code: "unreadable", message: `the answer ${answer.status} cannot be read` } }));
  if (!answer.ok) throw new Refused(answer.status, read.error);
  return read;
}

export const get = (path, query = {}) => {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  return call("GET", pairs.length ? `${path}?${new URLSearchParams(pairs)}` : path);
};
// A page of a list may be empty though others follow: then the next ones are asked for, a few of them.
export async function page(path, query) {
  let found = await get(path, query);
  for (let more = 5; more > 0 && found.items.length === 0 && found.next; more--) found = await get(path, { ...query, after: found.next });
  return found;
}
export const post = (path, body) => call("POST", path, body);
export const remove = (path) => call("DELETE", path);
export const part = (text) => encodeURIComponent(text);

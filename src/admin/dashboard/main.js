// Which page is shown, and keeping it up to date: asked again every two seconds while somebody looks.

import { ask, el } from "./dom.js";
import { Refused, token } from "./api.js";
import { workflow, workflows } from "./workflows.js";
import { event, events } from "./events.js";
import { letter, letters, replays } from "./letters.js";

const PAGES = [
  [/^#\/workflows\/([^/?]+)$/, workflow],
  [/^#\/events\/([^/?]+)$/, event],
  [/^#\/events(?:\?(.*))?$/, events],
  [/^#\/dead-letters\/([^/?]+)$/, letter],
  [/^#\/dead-letters(?:\?(.*))?$/, letters],
  [/^#\/replays$/, replays],
];
const EVERY = 2000;

const main = document.getElementById("main");
const pulse = document.getElementById("pulse");
let shown = null;
let timer = null;
let turn = 0;

function page() {
  const hash = location.hash || "#/";
  for (const [pattern, show] of PAGES) {
    const found = hash.match(pattern);
    if (found) return [show, decodeURIComponent(found[1] ?? "")];
  }
  return [workflows, ""];
}

function mark() {
  for (const link of document.querySelectorAll("nav a")) {
    const target = link.getAttribute("href");
    const is = target === "#/" ? ["", "#", "#/"].includes(location.hash) || location.hash.startsWith("#/workflows") : location.hash.startsWith(target);
    is ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
}

// Pages that are looked at closely, with a body or a form open, are not taken away while somebody reads.
const isHeld = () => main.querySelector("[data-hold]") !== null || document.getElementById("ask").open;

export async function refresh() {
  clearTimeout(timer);
  const mine = ++turn;
  const key = location.hash;
  try {
    const [show, argument] = page();
    if (!document.hidden && !(shown === key && isHeld())) {
      const nodes = await show(argument, refresh);
      if (mine !== turn) return;
      const at = document.activeElement?.id;
      main.replaceChildren(...nodes);
      if (shown !== key) main.focus({ preventScroll: true });
      else if (at && main.querySelector(`#${CSS.escape(at)}`)) document.getElementById(at).focus({ preventScroll: true });
      shown = key;
    }
    pulse.textContent = "live";
    pulse.className = "";
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Refused && error.status === 401) {
      main.replaceChildren(el("p", { class: "empty" }, "This process asks for a token."));
      shown = null;
      if (!document.getElementById("ask").open && (await sign())) return refresh();
      return;
    }
    pulse.textContent = error instanceof Refused ? error.message : "the process does not answer; trying again";
    pulse.className = "bad";
    if (shown !== key) main.replaceChildren(el("p", { class: "note bad" }, pulse.textContent));
    shown = error instanceof Refused ? key : shown;
  }
  timer = setTimeout(refresh, EVERY);
}

async function sign() {
  const field = el("input", { name: "token", type: "password", autocomplete: "off", "aria-label": "Token" });
  const given = await ask("Token", "Use it", "One of admin.tokens. It is kept in this tab until it is closed.", field);
  if (given) token(given.token.trim());
  return given !== null;
}

document.getElementById("sign").addEventListener("click", async () => (await sign()) && refresh());
addEventListener("hashchange", () => (mark(), scrollTo(0, 0), refresh()));
document.addEventListener("visibilitychange", () => document.hidden || refresh());
mark();
refresh();

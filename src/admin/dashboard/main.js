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
const dialog = document.getElementById("ask");
let shown = null;
let timer = null;
let turn = 0;
// Somebody was asked for a token and gave none.
let declined = false;

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

// What is looked at closely is not taken away: a body or a form that is open, a list that somebody chooses from, text that is selected.
function isHeld() {
  const at = document.activeElement;
  const selected = getSelection();
  return dialog.open || main.querySelector("[data-hold]") !== null || (at?.tagName === "SELECT" && main.contains(at)) ||
    (!selected.isCollapsed && selected.rangeCount > 0 && selected.getRangeAt(0).intersectsNode(main));
}

// Elements are made anew, and what had the focus is known by its id: it has the focus again, and nothing scrolls.
function replace(nodes, isSame) {
  const had = document.activeElement;
  const isWithin = had !== main && main.contains(had);
  // A filter goes to another page; whoever went there with the keyboard is still at the filter.
  const again = isWithin && had.id && (isSame || had.matches("select:focus-visible")) ? `#${CSS.escape(had.id)}` : null;
  const [left, top] = [scrollX, scrollY];
  main.replaceChildren(...nodes);
  const found = again && main.querySelector(again);
  if (found) found.focus({ preventScroll: true });
  else if (isWithin || !isSame) main.focus({ preventScroll: true });
  if (isSame && (scrollX !== left || scrollY !== top)) scrollTo(left, top);
}

async function draw(holds) {
  clearTimeout(timer);
  const mine = ++turn;
  const key = location.hash;
  const stays = () => shown === key && holds();
  try {
    const [show, argument] = page();
    let kept = stays();
    if (!document.hidden && !kept) {
      const nodes = await show(argument, refresh);
      if (mine !== turn) return;
      // Somebody may have begun to read meanwhile.
      kept = stays();
      if (!kept) replace(nodes, shown === key);
      shown = key;
    }
    tell(kept ? "kept as it is while you read" : "live", "");
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof Refused && error.status === 401) {
      await nameless();
      if (mine !== turn) return;
    } else {
      tell(error instanceof Refused ? error.message : "the process does not answer; trying again", "bad");
      if (shown !== key) main.replaceChildren(el("p", { class: "note bad" }, pulse.textContent));
      shown = error instanceof Refused ? key : shown;
    }
  }
  timer = setTimeout(tick, EVERY);
}

const tick = () => draw(isHeld);
// After something was done, what came of it is shown, whatever is looked at.
const refresh = () => draw(() => false);

function tell(text, kind) {
  if (pulse.textContent !== text) pulse.textContent = text;
  pulse.className = kind;
}

// Nothing is shown to nobody. A token is asked for once; whoever gives none finds the way on here, and the page goes on looking.
async function nameless() {
  tell("a token is needed", "bad");
  shown = null;
  if (!document.getElementById("give-token")) {
    main.replaceChildren(el("p", { class: "empty" }, "This process asks for a token."),
      el("p", {}, el("button", { type: "button", id: "give-token", class: "primary", onclick: sign }, "Give a token")));
  }
  if (!declined && !dialog.open) await sign();
}

async function sign() {
  const field = el("input", { name: "token", type: "password", autocomplete: "off", "aria-label": "Token" });
  const given = await ask("Token", "Use it", "One of admin.tokens. It is kept in this tab until it is closed.", field);
  declined = given === null;
  if (declined) return;
  token(given.token.trim());
  refresh();
}

document.getElementById("sign").addEventListener("click", sign);
addEventListener("hashchange", () => (mark(), scrollTo(0, 0), refresh()));
document.addEventListener("visibilitychange", () => document.hidden || tick());
mark();
refresh();

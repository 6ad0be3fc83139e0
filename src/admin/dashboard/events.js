// Events of a workflow, and one of them: what it carries, and every request that was made of it.

import { ask, chip, choice, decoded, el, table, when } from "./dom.js";
import { get, page, part, post } from "./api.js";

const STATES = ["scheduled", "available", "active", "retryable", "pending", "completed", "cancelled", "discarded"];

export function listed(items, empty) {
  return table([
    ["Event", (e) => el("a", { href: `#/events/${part(e.id)}`, id: `event-${e.id}` }, e.id)],
    ["State", (e) => el("span", {}, chip(e.state), e.held ? ` ${e.held}` : "", e.inDoubt && !e.held ? " in doubt" : "")],
    ["Attempts", (e) => e.attempts, "number"], ["Record", (e) => e.source], ["Due", (e) => when(e.due)],
  ], items, empty);
}

export async function events(argument) {
  const wanted = Object.fromEntries(new URLSearchParams(argument));
  const nothing = { items: [], next: null };
  const [{ items, next }, { items: known }] = await Promise.all([wanted.workflow ? page("/v1/events", { ...wanted, limit: 50 }) : nothing, get("/v1/workflows")]);
  const go = (change) => {
    const pairs = Object.entries({ ...wanted, after: "", ...change }).filter(([, value]) => value);
    location.hash = `#/events?${new URLSearchParams(pairs)}`;
  };
  return [
    el("h1", {}, "Events"),
    el("div", { class: "row" },
      choice("workflow", "Which workflow?", known.map((w) => w.id), wanted.workflow, go),
      choice("state", "Every state", STATES, wanted.state, go)),
    el("div", { id: "events" }, listed(items, !wanted.workflow ? "Choose a workflow." : next ? "None so far: there is more to look through." : "None.")),
    next ? el("p", {}, el("button", { type: "button", id: "next", onclick: () => go({ after: next }) }, "More")) : null,
  ].filter(Boolean);
}

// Requests that did not deliver, in order, with what was answered.
export function timeline(attempts, end) {
  const one = (a) => el("li", { class: "bad" },
    el("div", {}, el("strong", {}, `Request ${a.send}`), " ", when(a.at), ` · ${a.outcome}${a.status ? ` ${a.status}` : ""} · ${a.millis} ms`),
    a.error ? el("div", {}, a.error) : null,
    a.answer ? el("pre", {}, decoded(a.answer)) : null);
  return el("ol", { class: "timeline" }, attempts.map(one), end);
}

export function facts(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value != null && value !== "").flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// The body is hidden until somebody asks for it.
export function body(path, bytes) {
  const place = el("div", {});
  const show = async () => {
    const whole = await get(path, { payload: true });
    place.replaceChildren(el("pre", { "data-hold": true }, whole.body ? decoded(whole.body) : "nothing"), ...answers(whole.attempts));
  };
  place.append(el("button", { type: "button", id: "show-body", onclick: show }, `Show the body${bytes == null ? "" : `, ${bytes} bytes`}`));
  return place;
}

const answers = (attempts) => attempts.filter((a) => a.answer).map((a) => el("div", {}, `Answer to request ${a.send}`, el("pre", {}, decoded(a.answer))));

// What is sent, as far as it is certain; what is secret is masked where it comes from.
const request = (r) => [
  el("p", { class: "request" }, el("strong", {}, r.method), ` ${r.url}`),
  facts(Object.entries(r.headers)),
  el("p", { class: "under" }, "As the workflow is configured now. Each request adds its own oncebox-attempt and oncebox-fence; *** is secret."),
];

async function resolve(e, to, question, refresh) {
  if (!(await ask("What became of it?", "Say so", question))) return;
  await post(`/v1/events/${part(e.id)}/resolve`, { to });
  refresh();
}

export async function event(id, refresh) {
  const e = await get(`/v1/events/${part(id)}`);
  const word = (to, name, question) => el("button", { type: "button", id: `word-${to}`, onclick: () => resolve(e, to, question, refresh) }, name);
  const end = e.endedAt ? el("li", { class: e.state === "completed" ? "good" : "bad" }, el("strong", {}, e.state), " ", when(e.endedAt), e.status ? ` · ${e.status}` : "") : null;
  return [
    el("h1", {}, e.id, " ", chip(e.state)),
    el("p", { class: "under" }, el("a", { href: `#/workflows/${part(e.workflow)}`, id: "of-workflow" }, e.workflow), ` · ${e.topic}/${e.partition}/${e.offset}`),
    ...(e.held === "in_doubt" ? [
      el("p", { class: "note" }, "Its outcome is not known, and it is held until somebody says what became of it."),
      el("div", { class: "row" },
        word("delivered", "It was processed", "It is completed without another request."),
        word("redeliver", "It was not", "It is sent again, with the same key."),
        word("dead-letter", "Nobody knows", "It becomes a dead letter.")),
    ] : []),
    ...(e.deadLetter === "there" ? [el("p", { class: "note bad" }, el("a", { href: `#/dead-letters/${part(e.id)}`, id: "to-letter" }, "It is a dead letter."))] : []),
    facts([["Key", e.key], ["Type", e.eventType], ["Held", e.held], ["Requests", e.sends], ["Stored", when(e.createdAt)], ["Due", e.due ? when(e.due) : null],
      ["Dead letter", e.deadLetter], ["Trace", e.traceparent]]),
    el("h2", {}, "Requests"),
    e.attempts.length || end ? timeline(e.attempts, end) : el("p", { class: "empty" }, e.sends ? "One is under way." : "None yet."),
    el("h2", {}, "The request"),
    ...(e.request ? request(e.request) : e.key == null ? [] : [el("p", { class: "under" }, `${e.contentType}, to an endpoint that is not configured any more.`)]),
    e.key == null ? el("p", { class: "empty" }, "Its body is past its retention.") : body(`/v1/events/${part(e.id)}`, e.bodyBytes),
  ];
}

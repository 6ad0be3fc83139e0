// One event: what it carries, and every request that was made of it.

import { ask, chip, decoded, el, when } from "./dom.js";
import { get, part, post } from "./api.js";

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
    el("p", { class: "under" }, el("a", { href: `#/workflows/${part(e.workflow)}` }, e.workflow), ` · ${e.topic}/${e.partition}/${e.offset}`),
    ...(e.held === "in_doubt" ? [
      el("p", { class: "note" }, "Its outcome is not known, and it is held until somebody says what became of it."),
      el("div", { class: "row" },
        word("delivered", "It was processed", "It is completed without another request."),
        word("redeliver", "It was not", "It is sent again, with the same key."),
        word("dead-letter", "Nobody knows", "It becomes a dead letter.")),
    ] : []),
    ...(e.deadLetter === "there" ? [el("p", { class: "note bad" }, el("a", { href: `#/dead-letters/${part(e.id)}` }, "It is a dead letter."))] : []),
    facts([["Key", e.key], ["Type", e.eventType], ["Held", e.held], ["Requests", e.sends], ["Stored", when(e.createdAt)], ["Due", e.due ? when(e.due) : null],
      ["Dead letter", e.deadLetter], ["Trace", e.traceparent]]),
    el("h2", {}, "Requests"),
    e.attempts.length || end ? timeline(e.attempts, end) : el("p", { class: "empty" }, e.sends ? "One is under way." : "None yet."),
    el("h2", {}, "What is sent"),
    e.key == null ? el("p", { class: "empty" }, "Its body is past its retention.") : body(`/v1/events/${part(e.id)}`, e.bodyBytes),
  ];
}

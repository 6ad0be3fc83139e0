// All workflows, and one of them.

import { age, ask, bars, chip, el, many, percent, size, spark, table, tile, when } from "./dom.js";
import { get, page, part, post } from "./api.js";
import { facts, listed } from "./events.js";

const undelivered = ({ events: e }) => e.scheduled + e.available + e.active + e.retryable + e.pending;
const trouble = (w) => (w.state === "running" ? 0 : 1e12) + Math.max(w.deliveryLagSeconds, w.undeliveredAgeSeconds);
const link = (w) => el("a", { href: `#/workflows/${part(w.id)}`, id: `go-${w.id}` }, w.id);

export async function workflows() {
  const { items } = await get("/v1/workflows");
  items.sort((a, b) => trouble(b) - trouble(a) || a.id.localeCompare(b.id));
  const stopped = items.filter((w) => w.state !== "running").length;
  const dead = items.reduce((sum, w) => sum + w.deadLetters, 0);
  return [
    el("h1", {}, "Workflows"),
    el("p", { class: "under" }, `${items.length} in all, ${stopped} not running, ${dead.toLocaleString("en")} dead letters. ${!items.length || items.some((w) => w.live) ? "Rates and errors are those of this process." : "This process sends nothing: rates and errors are in Prometheus."}`),
    table([
      ["Workflow", link],
      ["State", (w) => chip(w.state)],
      ["Late", (w) => el("span", { class: w.deliveryLagSeconds > 60 ? "late" : "" }, age(w.deliveryLagSeconds)), "number"],
      ["Oldest", (w) => age(w.undeliveredAgeSeconds), "number"],
      ["In Kafka", (w) => w.kafkaLagRecords?.toLocaleString("en") ?? "–", "number"],
      ["Waiting", (w) => undelivered(w).toLocaleString("en"), "number"],
      ["Dead", (w) => (w.deadLetters ? el("a", { href: `#/dead-letters?workflow=${part(w.id)}`, id: `dead-${w.id}` }, many(w.deadLetters)) : "0"), "number"],
      ["Errors", (w) => el("span", { class: (w.live?.errorShare ?? 0) > 0.05 ? "late" : "" }, percent(w.live?.errorShare)), "number"],
      ["Per second", (w) => (w.live ? w.live.perSecond.toFixed(1) : "–"), "number"],
      ["Five minutes", (w) => (w.live ? spark(w.live.history) : "–")],
    ], items, "No workflow is configured."),
  ];
}

// Only its configuration pauses it: nothing that could be resumed here.
const isConfigured = (w) => w.state === "paused" && w.sends;

// What keeps a workflow from delivering, in words.
function why(w) {
  const notes = [];
  if (isConfigured(w)) notes.push("Its configuration pauses it, and nobody else: it runs once paused: true is taken out of that.");
  else if (w.state !== "running" && w.reason) notes.push(`${w.state} by ${w.changedBy}: ${w.reason}`);
  if (w.pausedByConfiguration && !isConfigured(w)) notes.push("Its configuration pauses it too: resumed, it stays paused until paused: true is taken out of that.");
  if (w.state === "removed") notes.push("It is not configured any more. Drain delivers what is left, park makes dead letters of it.");
  if (!w.isRun && w.state !== "removed") notes.push("No process runs it.");
  if (w.isRun && !w.isRead) notes.push("No process reads it: none of those that run it has the role.");
  if (w.isRun && !w.isSent) notes.push("No process sends it: none of those that run it has the role relay.");
  // Half-open is while the one request tries: an endpoint that hangs is so most of the time.
  if (w.live && w.live.circuit !== "closed") notes.push(`The circuit is ${w.live.circuit}: the endpoint only fails. One request tries again every now and then.`);
  if (w.blockedKeys) notes.push(`${many(w.blockedKeys)} ordering keys wait behind dead letters: replay or discard those.`);
  if (w.held) notes.push(`${many(w.held)} ${w.held === 1 ? "event is" : "events are"} in doubt, and ${w.held === 1 ? "waits" : "wait"} for your word.`);
  return notes.map((text) => el("p", { class: "note" }, text));
}

async function decide(w, verb, refresh, question) {
  if (question && !(await ask(`${verb} ${w.id}?`, verb, question))) return;
  await post(`/v1/workflows/${part(w.id)}/${verb.toLowerCase()}`);
  refresh();
}

function actions(w, refresh) {
  const button = (verb, question, kind) => el("button", { type: "button", class: kind, id: `do-${verb}`, onclick: () => decide(w, verb, refresh, question) }, verb);
  if (w.state === "removed") {
    return [button("Drain", "What is left is delivered with the last configuration."), button("Park", "Each event that is left becomes a dead letter.", "danger")];
  }
  if (w.state === "running") return [button("Pause", "Nothing is sent until it is resumed. Records are still read and kept.")];
  return isConfigured(w) ? [] : [button("Resume", null, "primary")];
}

const seconds = (value) => (value == null ? "–" : value < 1 ? `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value} s`);

const count = (number) => number.toLocaleString("en");

// What it may do at most, beside what it does.
function limits({ limits: most, ...w }) {
  if (!most) return el("p", { class: "empty" }, "This process does not have it in its configuration.");
  const rate = most.rateLimit;
  return facts([
    ["Requests at once", count(most.concurrency)],
    ["Requests a second", rate ? `${count(rate.perSecond)}, and ${count(rate.burst)} at once after an idle time` : "as many as there can be"],
    ["Dead letters", `more than ${count(most.deadLetterLimit.count)} in ${age(most.deadLetterLimit.perSeconds)} suspend it`],
    ["Undelivered events", `${count(undelivered(w))} of ${count(most.maxWaiting)}: above that reading pauses`],
    ["Their bodies", `${size(w.waitingBytes)} of ${size(most.maxWaitingBytes)}`],
  ]);
}

export async function workflow(id, refresh) {
  const [w, held, tried, dead] = await Promise.all([
    get(`/v1/workflows/${part(id)}`),
    page("/v1/events", { workflow: id, state: "pending", limit: 10 }),
    page("/v1/events", { workflow: id, state: "retryable", limit: 10 }),
    get("/v1/dead-letters", { workflow: id, limit: 5 }),
  ]);
  const all = (state) => `#/events?workflow=${part(id)}&state=${state}`;
  const more = [[held, "pending", "More that are held"], [tried, "retryable", "More that are to be tried again"]].filter(([found]) => found.next);
  const live = w.live;
  const labels = Object.entries(w.labels).map(([name, value]) => `${name}=${value}`).join(" ");
  return [
    el("h1", {}, w.id, " ", chip(w.state)),
    el("p", { class: "under" }, `${w.topics.join(", ")} → ${w.endpoint} · ${w.guarantee}${labels ? ` · ${labels}` : ""}`),
    el("div", { class: "row" }, actions(w, refresh)),
    ...why(w),
    el("div", { class: "tiles" },
      tile(age(w.deliveryLagSeconds), "late", w.deliveryLagSeconds > 60 ? "late" : ""),
      tile(age(w.undeliveredAgeSeconds), "oldest undelivered"),
      tile(w.kafkaLagRecords?.toLocaleString("en") ?? "–", "records in Kafka"),
      tile(live ? live.perSecond.toFixed(1) : "–", "delivered a second"),
      tile(percent(live?.errorShare), "requests that fail"),
      tile(live ? live.inFlight : "–", "under way"),
      tile(live ? chip(live.circuit) : "–", "circuit"),
      tile(many(w.deadLetters), "dead letters")),
    ...(live ? [el("h2", {}, "Delivered a second, five minutes"), spark(live.history, true)] : []),
    el("h2", {}, "Events"),
    el("div", { class: "tiles" }, Object.entries(w.events).map(([state, events]) => tile(count(events), state, "", all(state)))),
    el("h2", {}, "Limits, of all processes together"),
    limits(w),
    ...(live ? [
      el("h2", {}, "Time in each stage, last five minutes of this process"),
      table([["Stage", ([name]) => name], ...["p50", "p90", "p99"].map((p) => [p, ([, stage]) => seconds(stage[p]), "number"])],
        ["ingest", "queue", "send", "settle", "total"].map((name) => [name, live.stages[name] ?? {}]), ""),
      el("h2", {}, "Requests by outcome, since this process started"),
      bars(Object.entries(live.attempts).filter(([, count]) => count > 0).map(([name, count]) => [name, count, name === "delivered" ? "" : "bad"])),
    ] : []),
    el("h2", {}, "Last errors"),
    el("div", { id: "errors" }, table([
      ["When", (a) => when(a.at)], ["Outcome", (a) => a.outcome], ["Status", (a) => a.status ?? "–", "number"], ["What", (a) => a.error ?? "–"],
      ["Took", (a) => `${count(a.millis)} ms`, "number"], ["Request", (a) => a.send, "number"],
      ["Event", (a) => el("a", { href: `#/events/${part(a.event)}`, id: `error-${a.event}-${a.send}` }, a.event)], ["Now", (a) => chip(a.state)],
    ], w.lastErrors ?? [], "No request has failed of an event that waits, is held or is dead.")),
    el("h2", {}, "Waiting"),
    el("div", { id: "waiting" }, listed([...held.items, ...tried.items], more.length ? "None so far: there is more to look through." : "Nothing is held or waits for another try.")),
    more.length ? el("p", { class: "more" }, more.map(([, state, text]) => el("a", { href: all(state), id: `more-${state}` }, text))) : null,
    el("h2", {}, "Dead letters"),
    table([
      ["Event", (d) => el("a", { href: `#/dead-letters/${part(d.id)}`, id: `letter-${d.id}` }, d.id)], ["Reason", (d) => d.reason], ["Since", (d) => when(d.createdAt)],
    ], dead.items, "None."),
    dead.items.length ? el("p", {}, el("a", { href: `#/dead-letters?workflow=${part(id)}`, id: "letters-all" }, "All of them")) : null,
  ].filter(Boolean);
}

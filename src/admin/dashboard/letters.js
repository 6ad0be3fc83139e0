// Dead letters, one of them, and replays of many.

import { ask, chip, choice, el, table, when } from "./dom.js";
import { get, part, post, remove } from "./api.js";
import { body, facts, timeline } from "./events.js";

const REASONS = ["exhausted", "expired", "rejected", "invalid", "duplicate", "in_doubt", "too_large", "parked"];
const check = (name, text) => el("label", {}, el("input", { type: "checkbox", name }), ` ${text}`);

export async function letters(argument, refresh) {
  const wanted = Object.fromEntries(new URLSearchParams(argument));
  const [{ items, next }, { items: known }] = await Promise.all([get("/v1/dead-letters", { ...wanted, limit: 50 }), get("/v1/workflows")]);
  const go = (change) => {
    const pairs = Object.entries({ ...wanted, after: "", ...change }).filter(([, value]) => value);
    location.hash = `#/dead-letters?${new URLSearchParams(pairs)}`;
  };
  return [
    el("h1", {}, "Dead letters"),
    el("div", { class: "row" },
      choice("workflow", "Every workflow", known.map((w) => w.id), wanted.workflow, go),
      choice("reason", "Every reason", REASONS, wanted.reason, go),
      el("button", { type: "button", id: "replay-many", class: "primary", disabled: items.length === 0, onclick: () => many(wanted, refresh) }, "Replay these")),
    table([
      ["Event", (d) => el("a", { href: `#/dead-letters/${part(d.id)}`, id: `letter-${d.id}` }, d.id)],
      ["Workflow", (d) => el("a", { href: `#/workflows/${part(d.workflow)}`, id: `flow-${d.id}` }, d.workflow)],
      ["Reason", (d) => el("span", {}, d.reason, d.blocks ? " (blocks its key)" : "")],
      ["Attempts", (d) => d.attempts, "number"], ["Record", (d) => d.source], ["What", (d) => d.detail ?? ""], ["Since", (d) => when(d.createdAt)],
    ], items, "None. Everything is delivered or on its way."),
    next ? el("p", {}, el("button", { type: "button", id: "next", onclick: () => go({ after: next }) }, "Older ones")) : null,
  ].filter(Boolean);
}

async function many({ workflow, reason }, refresh) {
  const filter = { workflow, reason };
  const { count } = await post("/v1/dead-letters/replay", { ...filter, dryRun: true });
  const said = await ask(`Replay ${count.toLocaleString("en")} dead letters?`, "Replay",
    `${workflow ?? "Every workflow"}, ${reason ?? "every reason"}. Each is delivered again with the same key and bytes.`,
    el("label", {}, "At most so many a second (empty: as fast as it goes)", el("input", { name: "rate", type: "number", min: "0.1", step: "any" })),
    check("force", "also of at-most-once workflows"), check("newKey", "under new keys"));
  if (!said) return;
  // Under an id of its own: asked for again after a lost answer, it is begun once.
  const bytes = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const id = bytes.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/, "$1-$2-4$3-8$4-$5");
  await post("/v1/dead-letters/replay", { ...filter, id, perSecond: said.rate ? Number(said.rate) : undefined, force: said.force, newKey: said.newKey });
  location.hash = "#/replays";
  refresh();
}

export async function letter(id, refresh) {
  const d = await get(`/v1/dead-letters/${part(id)}`);
  const again = async () => {
    const said = await ask("Deliver it again?", "Replay", "With the same key and bytes: a receiver that has seen the key takes it for a copy.",
      check("force", "also though the workflow is at-most-once"), check("newKey", "under a new key"));
    if (!said) return;
    const made = await post(`/v1/dead-letters/${part(id)}/replay`, said);
    location.hash = `#/events/${part(made.id)}`;
  };
  const gone = async () => {
    if (!(await ask("Discard it for good?", "Discard", "The event is never delivered. That is on record, and cannot be taken back."))) return;
    await remove(`/v1/dead-letters/${part(id)}`);
    location.hash = "#/dead-letters";
  };
  return [
    el("h1", {}, d.id, " ", chip("discarded")),
    el("p", { class: "under" }, el("a", { href: `#/workflows/${part(d.workflow)}`, id: "of-workflow" }, d.workflow), ` · ${d.topic}/${d.partition}/${d.offset} · ${d.reason}`),
    el("div", { class: "row" },
      el("button", { type: "button", id: "replay", class: "primary", onclick: again }, "Replay"),
      el("button", { type: "button", id: "discard", class: "danger", onclick: gone }, "Discard")),
    d.lateSuccessAt ? el("p", { class: "note" }, "The endpoint did answer 2xx after it was given up: a replay may be a second effect.") : null,
    facts([["Why", d.detail], ["Key", d.key], ["Type", d.eventType], ["Requests", d.sends], ["Dead since", when(d.createdAt)]]),
    el("h2", {}, "Requests"),
    timeline(d.attempts, el("li", { class: "bad" }, el("strong", {}, d.reason), " ", when(d.createdAt))),
    el("h2", {}, "What is sent"),
    body(`/v1/dead-letters/${part(id)}`, d.bodyBytes),
  ].filter(Boolean);
}

export async function replays(_, refresh) {
  const { items } = await get("/v1/replays", { limit: 50 });
  const say = async (r, verb) => (await post(`/v1/replays/${part(r.id)}/${verb}`), refresh());
  const button = (r, verb) => el("button", { type: "button", id: `${verb}-${r.id}`, onclick: () => say(r, verb) }, verb);
  return [
    el("h1", {}, "Replays"),
    table([
      ["Begun", (r) => when(r.createdAt)], ["By", (r) => r.who], ["State", (r) => chip(r.state)],
      ["Which", (r) => `${r.filter.workflow ?? "every workflow"}, ${r.filter.reason ?? "every reason"}`],
      ["Progress", (r) => el("span", {}, el("progress", { max: Math.max(1, r.total), value: r.replayed + r.skipped, "aria-label": "progress" }), ` ${r.replayed} of ${r.total}`)],
      ["Skipped", (r) => el("span", { title: r.problem ?? "" }, r.skipped), "number"],
      ["", (r) => el("span", { class: "row" }, r.state === "running" ? button(r, "pause") : null, r.state === "paused" ? button(r, "resume") : null,
        ["running", "paused"].includes(r.state) ? button(r, "cancel") : null)],
    ], items, "No replay was ever asked for."),
  ];
}

// Elements, made of text alone: nothing that comes from outside is ever read as markup.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), doing(value));
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// A table: columns are [title, cell of a row, "number" or nothing].
export function table(columns, rows, empty) {
  if (rows.length === 0) return el("p", { class: "empty" }, empty);
  const head = columns.map(([title, , kind]) => el("th", { class: kind, scope: "col" }, title));
  const line = (row) => el("tr", {}, columns.map(([title, cell, kind]) => el("td", { class: kind, "data-name": title }, cell(row))));
  return el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows.map(line)));
}

export function spark(values, wide = false) {
  const [width, height] = wide ? [600, 90] : [120, 26];
  const most = Math.max(1e-9, ...values);
  const x = (i) => (values.length < 2 ? width : (i * (width - 4)) / (values.length - 1) + 2);
  const y = (value) => height - 3 - (value / most) * (height - 8);
  const path = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const now = values.length ? values[values.length - 1].toFixed(1) : "0";
  const label = `deliveries a second over the last five minutes, now ${now}, at most ${values.length ? most.toFixed(1) : "0"}`;
  return svg("svg", { class: wide ? "spark wide" : "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("path", { d: path || `M2 ${height - 3}L${width - 2} ${height - 3}`, "vector-effect": "non-scaling-stroke" }));
}

export function bars(entries) {
  const most = Math.max(1, ...entries.map(([, count]) => count));
  return el("div", { class: "bars" }, entries.flatMap(([name, count, kind]) => [
    el("span", {}, name),
    svg("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { width: Math.max(0.5, (count / most) * 100), height: 12, class: kind ?? "" })),
    el("span", {}, count.toLocaleString("en")),
  ]));
}

export function tile(value, name, kind, href) {
  return el(href ? "a" : "div", { class: "tile", href, id: href && `all-${name}` }, el("b", { class: kind }, value), el("span", {}, name));
}

const STATES = { running: "good", completed: "good", closed: "good", delivered: "good", paused: "warn", retryable: "warn", pending: "warn", "half-open": "warn" };
const BAD = ["suspended", "halted", "removed", "discarded", "open", "cancelled"];

export function chip(text) {
  return el("span", { class: `chip ${STATES[text] ?? (BAD.includes(text) ? "bad" : "")}` }, text);
}

export function age(seconds) {
  if (seconds == null || seconds < 0.05) return "–";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const from = units.findIndex(([, size]) => seconds >= size);
  let rest = Math.round(seconds);
  return units.slice(from, from + 2).map(([name, size]) => {
    const count = Math.floor(rest / size);
    rest %= size;
    return count ? `${count} ${name}` : "";
  }).join(" ").trim();
}

export function when(text) {
  if (!text) return "–";
  const at = new Date(text);
  return el("time", { datetime: text, title: text }, at.toLocaleString("sv-SE", { timeZone: "UTC" }), " UTC");
}

export function many(count) {
  return count >= 10001 ? "10,000+" : count.toLocaleString("en");
}

export function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const count = bytes / 1024 ** step;
  return `${Number.isInteger(count) ? count : count.toFixed(1)} ${units[step]}`;
}

// One of several values, or all.
export function choice(name, all, values, chosen, change) {
  return el("select", { id: `by-${name}`, "aria-label": name, onchange: (e) => change({ [name]: e.target.value }) },
    el("option", { value: "" }, all), values.map((value) => el("option", { value, selected: chosen === value }, value)));
}

export function percent(share) {
  return share == null ? "–" : `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;
}

// What bytes say, as they are: parsed and written again, a number could come out as another.
export function decoded(base64) {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
}

const dialog = document.getElementById("ask");
// No submit button: Enter in a field presses the first of those, and that one says yes.
document.getElementById("ask-no").addEventListener("click", () => dialog.close());
// An Enter that is still held down, on the button that led here, is no answer.
dialog.addEventListener("keydown", (e) => e.repeat && e.key === "Enter" && e.preventDefault());

// Asks before something is changed. Answers the form's fields, or nothing.
export function ask(title, yes, ...body) {
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-yes").textContent = yes;
  document.getElementById("ask-body").replaceChildren(...body.map((part) => (part instanceof Node ? part : el("p", {}, part))));
  dialog.returnValue = "";
  dialog.showModal();
  (dialog.querySelector("#ask-body input") ?? document.getElementById("ask-yes")).focus();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      const fields = {};
      for (const input of dialog.querySelectorAll("input, select")) fields[input.name] = input.type === "checkbox" ? input.checked : input.value;
      done(dialog.returnValue === "yes" ? fields : null);
    }, { once: true });
  });
}

// Does what a button is for; a refusal is shown, not swallowed.
export function doing(work) {
  return async (...given) => {
    try {
      await work(...given);
    } catch (error) {
      await ask("That was not done", "Close", error.message);
    }
  };
}

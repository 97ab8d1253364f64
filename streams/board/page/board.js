// The page: takes sections as they change (server-sent events) and shows them. Whatever comes from documents becomes text, never markup.

const $ = (id) => document.getElementById(id);
const sections = {};
const open = new Set();
let words = {}, session = {}, language = "en", theme = "auto", clock = 0, redBefore = null;

// Words

function say(key, facts = {}) {
  const found = words[key];
  const text = found ? found[language] : key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in facts ? String(facts[name]) : whole));
}
const number = (n) => (n === null || n === undefined ? say("unknown") : n.toLocaleString(language === "zh" ? "zh-CN" : "en"));
const digits = (n, places) => n.toLocaleString(language === "zh" ? "zh-CN" : "en", { maximumFractionDigits: places });
const now = () => Date.now() / 1000 + clock;

function lasting(seconds) {
  if (seconds === null || seconds === undefined) return say("unknown");
  if (seconds < 0.995) return say("unit.ms", { n: Math.round(seconds * 1000) });
  if (seconds < 59.5) return say("unit.s", { n: digits(seconds, seconds < 9.95 ? 1 : 0) });
  if (seconds < 3570) return say("unit.min", { n: digits(seconds / 60, seconds < 570 ? 1 : 0) });
  if (seconds < 84600) return say("unit.h", { n: digits(seconds / 3600, 1) });
  return say("unit.d", { n: digits(seconds / 86400, 1) });
}
const moment = (iso) => new Date(iso).toLocaleString(language === "zh" ? "zh-CN" : "en", { dateStyle: "short", timeStyle: "medium" });
const age = (since) => lasting(Math.max(0, Math.round(now() - since)));

// Elements

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "onclick") made.addEventListener("click", value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
function svg(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}
/** A text that counts on by itself: the age since then, in the words of `key`. */
function ticking(since, key = "since") {
  return el("span", { "data-since": since, "data-key": key }, aging(since, key));
}
const aging = (since, key) => (key === "age" ? age(since) : say(key, { age: age(since) }));
/** Put children into a place, and the focus back to where it was by its `data-focus`. */
function fill(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  place.replaceChildren(...children.flat().filter((child) => child || child === 0));
  if (focused) [...place.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === focused)?.focus();
}
function button(action, focus, label, work, strong = false) {
  const words = say(`act.${action}`);
  const name = label ? say("act.of", { action: words, document: label }) : null;
  return el("button", { type: "button", "data-focus": focus, "aria-label": name, class: strong ? "strong" : null, onclick: work }, words);
}
function table(caption, columns, rows) {
  const head = el("tr", { role: "row" }, columns.map(([key, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, say(key))));
  const body = rows.map((cells) => el("tr", { role: "row", "data-row": cells.key },
    cells.map((cell, place) => place === 0
      ? el("th", { scope: "row", role: "rowheader", class: "name" }, cell)
      : el("td", { role: "cell", "data-label": say(columns[place][0]), class: columns[place][1] }, cell))));
  return el("table", { class: "rows", role: "table" }, el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, body));
}
const named = (tenant, document, title, letters = 0) => [document ? `${tenant}/${document}` : say("letters.nobody"), title ? el("small", {}, title) : null,
  letters > 1 ? el("small", { class: "quiet below" }, say("letters.count", { letters: number(letters) })) : null];
const tag = (text, colour = "") => el("span", { class: `tag ${colour}` }, text);

// Sections

const render = {
  troubles({ shown, hidden }) {
    const red = shown.filter((each) => each.level === "red").length, amber = shown.length - red;
    const reading = sections.freshness && !sections.freshness.caught_up;
    $("state").className = `state ${red ? "bad" : amber ? "warn" : reading ? "" : "good"}`;
    const title = red ? say(red === 1 ? "state.bad.one" : "state.bad", { red })
      : amber ? say("state.warn", { amber }) : say(reading ? "state.reading" : "state.good");
    $("state-title").textContent = title;
    document.title = (red ? `(${red}) ` : "") + "docdelta";
    const lag = sections.freshness ? sections.freshness.lag : 0;
    $("state-more").textContent = red && amber ? say("state.more", { amber })
      : !red && !amber && !reading ? (lag ? say("state.busy.more", { lag: number(lag) }) : say("state.good.more")) : "";
    fill($("troubles"), shown.map((each, place) => trouble(each, place)), hidden ? el("li", { class: "amber" }, say("state.hidden", { hidden })) : null);
    const said = `${title}. ${shown.map((each) => cause(each)).join(" ")}`;
    if (redBefore !== null && redBefore !== red) $("said").textContent = said;
    redBefore = red;
  },

  freshness(found) {
    const fresh = found.p50 !== null;
    tile("fresh", fresh ? lasting(found.p50) : "–", fresh ? say("tile.fresh.note", { p99: lasting(found.p99) })
      : found.hour_p50 !== null ? say("tile.fresh.hour", { p50: lasting(found.hour_p50) }) : say("tile.fresh.none"));
    tile("oldest", found.oldest_since ? ticking(found.oldest_since, "age") : "–", say(found.oldest_since ? "tile.oldest.note" : "tile.oldest.none"),
      found.oldest_since && now() - found.oldest_since > 600);
    tile("lag", found.lag_at ? number(found.lag) : "–", found.lag_at ? [ticking(found.lag_at, "tile.lag.note"),
      found.bulk ? el("span", { class: "below" }, say("tile.lag.bulk", { bulk: number(found.bulk) })) : null] : say("tile.lag.none"));
    tiles();
    $("hour-figures").textContent = found.timed
      ? say("hour.figures", { timed: number(found.timed), p50: lasting(found.hour_p50), p99: lasting(found.hour_p99), longest: lasting(found.longest) })
      : say("hour.none");
    $("hour").dataset.width = $("hour").clientWidth;
    fill($("hour"), plot(found.minutes), el("p", { class: "key" }, el("span", { class: "k50" }, say("hour.key50")),
      el("span", { class: "k99" }, say("hour.key99")), el("span", { class: "kbar" }, say("hour.keybar"))));
    if (sections.troubles) render.troubles(sections.troubles);
  },

  totals(found) {
    tiles();
    const parts = ["computed", "borrowed", "avoided"], whole = parts.reduce((sum, name) => sum + found[name], 0);
    const bar = el("div", { class: "stack", "aria-hidden": "true" }, parts.map((name) => {
      const part = el("span", { class: `c-${name}` });
      part.style.width = whole ? `${(100 * found[name]) / whole}%` : "0";
      return part;
    }));
    const figure = (name, key, colour) => el("div", {}, el("dt", {}, colour ? el("i", { class: `c-${name}` }) : null, say(key)),
      el("dd", { id: `total-${name}` }, number(found[name])));
    fill($("embeddings"), bar,
      el("dl", { class: "figures" }, parts.map((name) => figure(name, `embed.${name}`, true))),
      el("dl", { class: "figures" }, ["added", "updated", "removed", "kept"].map((name) => figure(name, `chunks.${name}`, false))));
  },

  worst(found) {
    const rows = found.map((each) => {
      const label = `${each.tenant}/${each.document}`, colour = { refused: "red", held: "red", waiting: "amber", slow: "" }[each.kind];
      const reason = say(`reason.${each.kind}`, { reason: each.reason, seconds: lasting(each.seconds) });
      const focus = `worst ${each.kind} ${label}`;
      const act = each.action === "replay" ? button("replay", focus, label, () => replay(each.letter, label))
        : button("why", focus, label, () => why(each.tenant, each.document));
      const row = [named(each.tenant, each.document, each.title, each.letters), [tag(say(`kind.${each.kind}`), colour), " ", reason],
        each.since ? ticking(each.since, "ago") : say("unknown"), act];
      row.key = label;
      return row;
    });
    const columns = [["worst.document"], ["worst.reason", "wide"], ["worst.since", "brief"], ["worst.action", "brief act"]];
    fill($("worst"), rows.length ? table(say("worst.caption"), columns, rows) : el("p", { class: "empty" }, say("worst.none")));
  },

  letters(found) {
    tiles();
    $("letters-note").textContent = found.open ? say("letters.note", { open: number(found.open), shown: number(found.shown.length) }) : "";
    const rows = found.shown.map((each) => {
      const label = each.document ? `${each.tenant}/${each.document}` : each.id;
      const row = [named(each.tenant, each.document, each.title, each.letters),
        [tag(each.error, "red"), " ", each.reason],
        [each.stage, each.batch ? el("small", { class: "quiet below" }, each.batch) : null],
        ticking(each.at, "ago"),
        el("div", { class: "actions" }, button("show", `show ${each.id}`, label, () => letter(each.id, label)))];
      row.key = each.id;
      return row;
    });
    const columns = [["letters.document"], ["letters.error", "wide"], ["letters.stage"], ["letters.when", "brief"], ["letters.action", "brief act"]];
    fill($("letters"), rows.length ? table(say("letters.caption"), columns, rows) : el("p", { class: "empty" }, say("letters.none")));
  },

  lag(found) {
    fill($("lag"), found.length ? found.map(group) : el("p", { class: "empty" }, say("lag.none")));
  },

  batches({ shown, hidden }) {
    fill($("batches"), shown.length ? shown.map(batch) : el("p", { class: "empty" }, say("batches.none")),
      hidden ? el("p", { class: "empty" }, say("batches.hidden", { hidden })) : null);
  },

  tenants({ shown, others, hidden }) {
    const line = (name, each) => {
      const row = [name, each.open ? el("span", { class: "bad-text" }, number(each.open)) : number(each.open || 0),
        each.waits_since ? ticking(each.waits_since, "age") : "–", number(each.settled), number(each.indexed), number(each.computed),
        number(each.avoided), each.last ? ticking(each.last, "ago") : "–"];
      row.key = name;
      return row;
    };
    const rows = shown.map((each) => line(each.tenant, each));
    if (others.settled) rows.push(line(say("tenants.others", { hidden: number(hidden) }), others));
    const columns = [["tenants.tenant"], ...["open", "waits", "settled", "indexed", "computed", "avoided", "last"].map((name) => [`tenants.${name}`, "number"])];
    fill($("tenants"), rows.length ? table(say("tenants.caption"), columns, rows) : el("p", { class: "empty" }, say("tenants.none")));
  },
};

function tile(name, value, note, bad = false) {
  const place = $(`tile-${name}`);
  place.className = bad ? "bad" : "";
  fill(place.querySelector(".value"), value);
  fill(place.querySelector(".note"), note);
}
function tiles() {
  const { totals, letters, freshness } = sections;
  if (freshness && totals) tile("settled", number(freshness.settled_hour), say("tile.settled.note", { recent: number(freshness.settled_recent), all: number(totals.settled) }));
  if (letters) tile("letters", number(letters.open), say("tile.letters.note", { written: number(letters.written) }), letters.open > 0);
  if (totals) tile("avoided", number(totals.avoided), say("tile.avoided.note", { computed: number(totals.computed), borrowed: number(totals.borrowed) }));
}

function factsOf(each) {
  const facts = { ...each.facts };
  if (facts.line && words[`gate.${facts.line}`]) facts.line = say(`gate.${facts.line}`);
  for (const [name, value] of Object.entries(facts)) if (typeof value === "number") facts[name] = number(value);
  return facts;
}
const cause = (each) => say(`trouble.${each.kind}`, factsOf(each));
function trouble(each, place) {
  const line = el("p", { class: "cause" }, el("span", { class: "level" }, say(each.level)), cause(each));
  const does = el("div", { class: "do" }, el("span", {}, say(`trouble.${each.kind}.do`, factsOf(each))));
  if (each.command) {
    const copy = el("button", { type: "button", "data-focus": `copy ${each.kind} ${place}`, "aria-label": `${say("copy")}: ${each.command}`,
      onclick: (event) => copied(event.currentTarget, each.command) }, say("copy"));
    does.append(el("code", {}, each.command), copy);
  }
  if (each.kind === "dead_letters") does.append(el("a", { href: "#letters-title", "data-focus": "to letters" }, say("letters.title")));
  return el("li", { class: each.level, "data-kind": each.kind }, line, each.since ? el("p", { class: "quiet" }, ticking(each.since)) : null, does);
}
async function copied(place, text) {
  try { await navigator.clipboard.writeText(text); place.textContent = say("copied"); } catch { getSelection().selectAllChildren(place.previousSibling); }
}

function group(each) {
  const parts = each.partitions.map(([topic, partition, end, lag, since]) => {
    const row = [topic, String(partition), number(end), number(lag), lag && since ? ticking(since, "age") : "–"];
    row.key = `${topic} ${partition}`;
    return row;
  });
  const columns = [["lag.topic"], ["lag.partition", "number"], ["lag.end", "number"], ["lag.lag", "number"], ["lag.age", "number"]];
  const key = `group ${each.group}`;
  const head = el("summary", { "data-focus": key }, el("h3", {}, each.group),
    each.lane === "live" ? null : tag(say(`lane.${each.lane}`)), each.lag ? tag(say("lag.ahead", { lag: number(each.lag) }), each.lane === "live" ? "amber" : "") : tag(say("lag.level"), "green"),
    each.since ? el("span", { class: "quiet" }, ticking(each.since, "lag.oldest")) : null,
    each.members === null ? null : el("span", { class: each.members ? "quiet" : "bad-text" }, say("lag.members", { members: each.members })));
  return folding(key, el("details", { class: "group", "data-group": each.group, "data-lag": each.lag }, head,
    table(say("lag.caption", { group: each.group }), columns, parts), each.hidden ? el("p", { class: "quiet" }, say("lag.hidden", { hidden: each.hidden })) : null));
}
/** Keep a <details> open over renderings. */
function folding(key, details) {
  details.open = open.has(key);
  details.addEventListener("toggle", () => (details.open ? open.add(key) : open.delete(key)));
  return details;
}

function batch(each) {
  const colour = { active: "green", building: "amber", ready: "amber" }[each.state] || "";
  const head = el("div", { class: "line" }, el("h3", {}, each.batch), tag(say(`batch.${each.state}`), colour),
    each.served ? tag(say("batches.served"), "green") : null,
    el("span", { class: "quiet" }, each.model), el("span", { class: "quiet" }, ticking(each.since)),
    each.points === null ? null : el("span", { class: "quiet" }, say("batches.points", { points: number(each.points) })));
  const counted = Object.fromEntries(Object.entries(each.tally).map(([name, value]) => [name, number(value)]));
  const lines = [head, el("p", { class: "quiet" }, say("batches.done", counted))];
  if (each.audit) {
    lines.push(el("p", { class: "quiet" }, ticking(each.audit.since, "batches.audit"), each.audit.left ? ` · ${say("batches.audit.left", { left: number(each.audit.left) })}` : ""));
  }
  const builds = each.state === "building" || each.state === "ready";
  if (builds && each.whole !== null) {
    const text = say("batches.build", { passed: number(each.passed), whole: number(each.whole) });
    lines.push(el("p", {}, text), el("progress", { max: each.whole || 1, value: each.whole ? each.passed : 1, "aria-label": text }));
  }
  if (builds) {
    const gate = each.gate;
    lines.push(el("div", { class: "line" }, el("b", {}, say("batches.gate")),
      gate ? el("span", { class: "quiet" }, ticking(gate.at, "batches.gate.at")) : el("span", { class: "quiet" }, say("batches.gate.not")),
      button("gate", `gate ${each.batch}`, each.batch, () => act("gate", { batch: each.batch }, each.batch))));
    if (gate && gate.problem) lines.push(el("p", { class: "bad-text" }, gate.problem));
    if (gate) lines.push(el("ul", { class: "gate" }, gate.lines.map(([name, passed, figure, advice, waits]) => {
      const kind = passed ? "ok" : waits ? "wait" : "no", mark = { ok: "✓", wait: "…", no: "✗" }[kind];
      const title = words[`gate.${name}`] ? say(`gate.${name}`) : name;
      return el("li", {}, el("span", { class: kind, role: "img", "aria-label": say(`gate.${kind}`) }, mark),
        el("span", {}, el("b", {}, title), `: ${figure}`, passed ? null : el("span", { class: "quiet" }, ` — ${advice}`)));
    })));
  }
  return el("div", { class: "batch", "data-batch": each.batch }, lines);
}

function plot(minutes) {
  const width = Math.max(240, $("hour").clientWidth || 600), height = 180, left = 60, right = 8, top = 8, bottom = 22;
  const across = (place) => left + ((width - left - right) * (place + 0.5)) / minutes.length;
  const most = Math.max(1, ...minutes.map(([settled]) => settled));
  const slowest = Math.max(0.1, ...minutes.map(([, , p99]) => p99 || 0));
  const base = height - bottom, room = base - top;
  const up = (seconds) => base - (room * Math.log1p(seconds * 20)) / Math.log1p(slowest * 20);
  const made = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${say("hour.label")}. ${$("hour-figures").textContent}` });
  for (const share of [0, 0.5, 1]) {
    const seconds = share === 0 ? 0 : share === 1 ? slowest : Math.expm1(Math.log1p(slowest * 20) / 2) / 20;
    made.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: up(seconds), y2: up(seconds) }));
    made.append(svg("text", { x: left - 6, y: up(seconds) + 4, "text-anchor": "end" }, seconds ? lasting(seconds) : "0"));
  }
  minutes.forEach(([settled], place) => {
    if (!settled) return;
    const tall = Math.max(2, (room * 0.6 * settled) / most), wide = Math.min(7, (0.72 * (width - left - right)) / minutes.length);
    made.append(svg("rect", { class: "bar", x: across(place) - wide / 2, width: wide, y: base - tall, height: tall, rx: 1 }));
  });
  for (const [which, name, dot] of [[2, "p99", "dot99"], [1, "p50", "dot50"]]) {
    let path = "", before = null;
    minutes.forEach((minute, place) => {
      if (minute[which] === null) return;
      path += `${before === null ? "M" : "L"}${across(place).toFixed(1)} ${up(minute[which]).toFixed(1)}`;
      before = place;
      made.append(svg("circle", { class: dot, cx: across(place), cy: up(minute[which]), r: width < 420 ? 1.4 : 2.2 }));
    });
    made.append(svg("path", { class: name, d: path }));
  }
  made.append(svg("text", { x: left, y: height - 6 }, say("hour.ago")), svg("text", { x: width - right, y: height - 6, "text-anchor": "end" }, say("hour.now")));
  return made;
}

// Dialogs and actions

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const found = await answer.json().catch(() => ({ error: `${answer.status}` }));
  if (!answer.ok) throw new Error(found.error || answer.status);
  return found;
}
function show(title, ...body) {
  $("dialog-title").textContent = title;
  $("dialog-said").textContent = "";
  fill($("dialog-body"), ...body);
  if (!$("dialog").open) $("dialog").showModal();
}
const facts = (pairs) => el("dl", { class: "figures" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .map(([key, value]) => el("div", {}, el("dt", {}, say(key)), el("dd", {}, value))));

async function reading(title, path, body) {
  show(title, el("p", { class: "quiet" }, say("done.working")));
  try { const found = await get(path); show(title, ...body(found)); } catch (error) { show(title, el("p", { class: "bad-text" }, say("done.error", { said: error.message }))); }
}
function why(tenant, document) {
  const label = `${tenant}/${document}`;
  const query = new URLSearchParams({ tenant, document });
  return reading(say("why.title", { document: label }), `/api/why?${query}`, (found) => {
    const body = [el("p", {}, found.explanation), ...found.stops.map((stop) => el("p", { class: "bad-text" }, stop))];
    body.push(el("h3", {}, say("why.fix")), el("p", {}, found.fix.words));
    if (found.fix.command) body.push(el("p", {}, el("code", {}, found.fix.command)));
    if (found.chunks !== null) body.push(el("p", { class: "quiet" }, say("why.chunk", { count: number(found.chunks), revisions: found.revisions.join(", ") || "–" })));
    for (const problem of found.problems) body.push(el("p", { class: "bad-text" }, say("why.problem", { said: problem })));
    const rows = found.timeline.map((each) => [each.at ? moment(each.at) : say("unknown"), [each.stage, each.batch ? el("small", { class: "quiet below" }, each.batch) : null],
      [tag(each.what, { dead_lettered: "red", held: "red", indexed: "green", unchanged: "green" }[each.what]), " ",
        each.reason, el("small", { class: "quiet below" }, Object.entries(each.figures).map(([name, count]) => `${name} ${number(count)}`).join(", "))],
      each.revision === null ? "–" : String(each.revision)]);
    if (rows.length) body.push(el("h3", {}, say("why.timeline")), table(found.earlier ? say("why.earlier", { earlier: number(found.earlier) }) : say("why.all"),
      [["why.at", "brief"], ["why.stage"], ["why.what", "wide"], ["why.revision", "brief"]], rows));
    body.push(el("div", { class: "actions" }, button("reindex", "reindex", label, () => act("reindex", { tenant, document }, label), true)));
    return body;
  });
}
function letter(id, label) {
  return reading(say("letter.title", { id }), `/api/letter?${new URLSearchParams({ id })}`, (found) => [
    el("p", {}, tag(found.error, "red"), " ", found.reason),
    facts([["letters.document", label], ["letter.state", say(`letter.state.${found.state}`)], ["letter.source", found.source], ["letter.stage", found.stage],
      ["letter.batch", found.batch], ["letter.attempts", number(found.attempts)], ["letter.newest", found.newest === null ? null : String(found.newest)],
      ["letter.key", found.key], ["letter.facts", Object.entries(found.facts).map(([name, value]) => `${name}: ${value}`).join("; ")]]),
    el("h3", {}, say("letter.event")),
    el("pre", { id: "letter-event", tabindex: "0" }, found.value === null ? say("letter.null") : pretty(found.value)),
    el("div", { class: "actions" },
      button("replay", "replay", label, () => act("replay", { letter: id }, label), true), button("drop", "drop", label, () => act("drop", { letter: id }, label))),
  ]);
}
function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
}
function replay(id, label) {
  show(say("act.of", { action: say("act.replay"), document: label }), el("p", { class: "quiet" }, say("letter.title", { id })));
  return act("replay", { letter: id }, label);
}
async function act(action, body, label) {
  if (!$("dialog").open) show(say("act.of", { action: say(`act.${action}`), document: label }));
  $("dialog-said").textContent = say("done.working");
  for (const each of $("dialog-body").querySelectorAll("button")) each.disabled = true;
  try {
    const answer = await fetch(`/api/${action}`, { method: "POST", body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", "X-Docdelta-Csrf": session.csrf } });
    const found = await answer.json().catch(() => ({ error: `${answer.status}` }));
    if (!answer.ok) throw new Error(found.error || answer.status);
    $("dialog-said").textContent = say(`done.${found.outcome}`, found);
  } catch (error) {
    $("dialog-said").textContent = say("done.error", { said: error.message });
  }
  for (const each of $("dialog-body").querySelectorAll("button")) each.disabled = false;
  $("dialog-close").focus();
}

// Language, colours, connection

function speak() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const each of document.querySelectorAll("[data-w]")) each.textContent = say(each.dataset.w);
  for (const each of document.querySelectorAll("[data-a]")) each.setAttribute("aria-label", say(each.dataset.a));
  $("language").textContent = say("language.label");
  $("language").lang = language === "zh" ? "en" : "zh-CN";
  colour();
  $("place").textContent = say("place", session);
  link($("link").dataset.state || "wait");
  for (const [name, value] of Object.entries(sections)) render[name](value);
}
function colour() {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = say(`theme.${theme}`);
}
function link(state) {
  const place = $("link");
  place.className = `link ${state}`;
  if (place.dataset.state !== state || place.textContent !== say(`link.${state}`)) place.textContent = say(`link.${state}`);
  place.dataset.state = state;
  $("state").classList.toggle("old", state === "off");
}
function remember(name, value) {
  try { localStorage.setItem(`docdelta-${name}`, value); } catch { /* private windows remember nothing */ }
}
function remembered(name) {
  try { return localStorage.getItem(`docdelta-${name}`); } catch { return null; }
}
function tick() {
  for (const each of document.querySelectorAll("[data-since]")) {
    const since = Number(each.dataset.since);
    const text = aging(since, each.dataset.key);
    if (each.textContent !== text) each.textContent = text;
  }
}
function listen() {
  const stream = new EventSource("/api/events");
  stream.onerror = () => link("off");
  stream.addEventListener("now", (event) => {
    clock = Number(event.data) - Date.now() / 1000;
    link("on");
  });
  for (const name of Object.keys(render)) {
    stream.addEventListener(name, (event) => {
      sections[name] = JSON.parse(event.data);
      render[name](sections[name]);
      tick();
      document.body.dataset.seen = String(Number(document.body.dataset.seen || 0) + 1);
    });
  }
}

async function begin() {
  [words, session] = await Promise.all([get("/words.json"), get("/api/session")]);
  language = remembered("language") || (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
  theme = remembered("theme") || "auto";
  clock = session.now - Date.now() / 1000;
  $("language").addEventListener("click", () => { language = language === "zh" ? "en" : "zh"; remember("language", language); speak(); });
  $("theme").addEventListener("click", () => { theme = { auto: "light", light: "dark", dark: "auto" }[theme]; remember("theme", theme); colour(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", colour);
  $("dialog-close").addEventListener("click", () => $("dialog").close());
  speak();
  new ResizeObserver(() => sections.freshness && $("hour").dataset.width !== String($("hour").clientWidth) && render.freshness(sections.freshness)).observe($("hour"));
  setInterval(tick, 1000);
  listen();
}
begin();

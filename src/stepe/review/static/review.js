// The review: what is shown, what keys do, and what follows from a decision. The disk is the saver's business.

import { get, post, speakOf } from "./api.js";
import { find, name, visible } from "./dom.js";
import { make } from "./elements.js";
import { Previews } from "./previews.js";
import { drawDone, drawGrid, drawOne } from "./draw.js";
import * as queues from "./queue.js";
import { Saver } from "./saver.js";

const POLL = 3_000;
const MOST_PAIRS = 200;
const WORDS = { accepted: "accepted", kept: "kept", relabelled: "relabelled", unsure: "not sure" };

const EVERYTHING = { status: "open", given: null, suggested: null, group: null };

const state = {
  suspects: [],
  classes: [],
  byRow: new Map(),
  decided: new Map(),
  filters: { ...EVERYTHING },
  mode: "ranked",
  view: "one",
  blind: false,
  queue: [],
  place: 0,
  leftOut: new Set(),
  mine: [],
  progress: null,
};
const previews = new Previews((rows) => {
  if (onScreen().some((suspect) => rows.includes(suspect.row))) draw();
});
let saver;
let channel;

// ---------------------------------------------------------------------------------------------------------------
// What is looked at

const current = () => state.queue[state.place];

function onScreen() {
  if (state.view === "one") return current() ? [current()] : [];
  const size = gridSize();
  return state.queue.filter((suspect) => isOpen(suspect)).slice(0, size);
}

const isOpen = (suspect) => queues.statusOf(state.decided, suspect.row) === "open";

function gridSize() {
  const first = state.queue.find((suspect) => previews.previews.has(suspect.row));
  return first && previews.previews.get(first.row).picture ? 24 : 12;
}

// Start over with the suspects that fit the filters.
function collect(row = null) {
  if (state.mode === "sample") {
    state.queue = queues.sampled(state.suspects, queues.sampleSize(state.suspects, state.decided));
  } else {
    state.queue = queues.filtered(state.suspects, state.decided, state.filters);
  }
  const at = row === null ? -1 : state.queue.findIndex((suspect) => suspect.row === row);
  const wantsOpen = state.mode === "sample" || state.filters.status === "open";
  state.place = at >= 0 ? at : wantsOpen ? queues.nextOpen(state.queue, state.decided, -1) : state.queue.length ? 0 : -1;
  state.leftOut.clear();
  draw();
  drawSide();
}

function advance() {
  const wantsOpen = state.mode === "sample" || state.filters.status === "open";
  if (wantsOpen) state.place = queues.nextOpen(state.queue, state.decided, state.place);
  else if (state.place < state.queue.length - 1) state.place += 1;
  draw();
}

function move(step) {
  if (!state.queue.length) return;
  const from = state.place < 0 ? (step < 0 ? state.queue.length : -1) : state.place;
  state.place = Math.max(0, Math.min(state.queue.length - 1, from + step));
  draw();
}

function show(view, pair = null) {
  if (view === "grid" && state.blind) return;
  const at = current();
  state.view = view;
  if (view === "grid") {
    const chosen = pair ?? (at || queues.pairs(state.suspects, state.decided)[0]);
    state.mode = "ranked";
    Object.assign(state.filters, { status: "open", given: chosen.given, suggested: chosen.suggested });
  }
  collect(at?.row ?? null);
}

// ---------------------------------------------------------------------------------------------------------------
// Decisions

function verdictOf(suspect, label) {
  if (label === null) return "unsure";
  if (label === suspect.given) return "kept";
  return label === suspect.suggested ? "accepted" : "relabelled";
}

function decide(choices) {
  const rows = choices.map((choice) => choice.row);
  const action = { id: crypto.randomUUID(), origin: state.mode, choices, rows };
  state.mine.push({ id: action.id, rows, before: rows.map((row) => state.decided.get(row)) });
  for (const { row, label } of choices) put(row, { verdict: verdictOf(state.byRow.get(row), label), label });
  saver.add(action);
  tellOthers(rows);
  if (choices.length === 1) toast(...describe(state.byRow.get(rows[0])));
  else toast(`${choices.length} labels accepted`);
}

function choose(label) {
  const suspect = current();
  if (state.view !== "one" || !suspect) return;
  if (label !== null && (label < 0 || label >= state.classes.length)) return;
  decide([{ row: suspect.row, label }]);
  advance();
}

function accept() {
  if (!state.blind && current() && current().suggested >= 0) choose(current().suggested);
}

function acceptAll() {
  const shown = onScreen().filter((suspect) => !state.leftOut.has(suspect.row) && suspect.suggested >= 0);
  if (state.view !== "grid" || !shown.length) return;
  decide(shown.map((suspect) => ({ row: suspect.row, label: suspect.suggested })));
  // Those that were left out are looked at one by one, later.
  state.queue = state.queue.filter((suspect) => !state.leftOut.has(suspect.row));
  state.leftOut.clear();
  draw();
}

function undo() {
  const last = state.mine.pop();
  if (!last) {
    toast("Nothing to undo here; go back with ← and decide again");
    return;
  }
  last.rows.forEach((row, i) => put(row, last.before[i] ?? null));
  saver.add({ id: crypto.randomUUID(), undoes: last.id, rows: last.rows });
  tellOthers(last.rows);
  toast(last.rows.length > 1 ? `${last.rows.length} decisions undone` : "Undone");
  const at = state.queue.findIndex((suspect) => suspect.row === last.rows[0]);
  if (at >= 0 && state.view === "one") {
    state.place = at;
    draw();
    drawSide();
  } else collect(last.rows[0]);
}

function put(row, decision) {
  if (decision) state.decided.set(row, decision);
  else state.decided.delete(row);
}

function tellOthers(rows) {
  channel.postMessage(rows.map((row) => [row, state.decided.get(row) ?? null]));
}

// Somebody else decided: another tab, or another process. Whoever is looking at this page is not moved on.
function heard(changes) {
  let any = false;
  for (const [row, decision] of changes) {
    const before = state.decided.get(row);
    if (!state.byRow.has(row) || saver.holds(row)) continue;
    if (before?.verdict === decision?.verdict && before?.label === decision?.label) continue;
    put(row, decision);
    any = true;
  }
  if (!any) return;
  if (!document.hasFocus()) catchUp();
  draw();
}

function catchUp() {
  const wantsOpen = state.mode === "sample" || state.filters.status === "open";
  if (wantsOpen && state.view === "one" && current() && !isOpen(current())) advance();
}

function told(answer) {
  if (answer.entry < saver.since) return; // overtaken by a later answer
  saver.since = answer.entry;
  state.progress = answer.progress;
  const changes = Object.entries(answer.decided).map(([row, decision]) => [
    Number(row),
    decision && { verdict: decision[0], label: decision[1] },
  ]);
  heard(changes);
  drawProgress();
  if (changes.length) drawSide();
}

async function look() {
  try {
    const answer = await get(`/api/changes?since=${saver.since}`);
    saver.problem = null;
    told(answer);
    if (saver.waiting.length) saver.send();
  } catch (error) {
    saver.problem = error.status ? error.message : "The server does not answer; is `stepe review` running?";
  }
  drawSaved();
}

// ---------------------------------------------------------------------------------------------------------------
// Drawing

// Nothing is suggested (-1) where the model cannot say, or the input shows nothing.
const labelName = (number) => (number === null ? "" : number < 0 ? "?" : state.classes[number]);

function describe(suspect) {
  const decision = state.decided.get(suspect.row);
  const other = ["unsure", "kept"].includes(decision.verdict) ? [] : [" → ", name(labelName(decision.label))];
  return [name(labelName(suspect.given)), ...other, `: ${WORDS[decision.verdict]}`];
}

const actions = { accept, acceptAll, choose, undo, show, move, collect, draw };

function draw() {
  const main = find("#main");
  const shown = onScreen();
  const context = { state, previews, labelName, actions, words: WORDS, isOpen, shown };
  const focused = document.activeElement;
  if (!shown.length) main.replaceChildren(drawDone(context, queues));
  else main.replaceChildren(...(state.view === "grid" ? drawGrid(context) : drawOne(context)));
  if (focused?.id === "finder" && find("#finder")) {
    // Somebody is typing: drawn anew, it still holds what was typed.
    find("#finder").value = focused.value;
    find("#finder").dispatchEvent(new Event("input"));
    find("#finder").focus();
  } else if (focused?.matches(".card")) find(`.card[data-row="${focused.dataset.row}"]`)?.focus();
  document.body.classList.toggle("blind", state.blind);
  const ahead = state.view === "grid" ? state.queue.filter(isOpen) : state.queue.slice(Math.max(0, state.place));
  previews.fetch(ahead.slice(0, 60).map((suspect) => suspect.row));
  drawProgress();
}

function drawProgress() {
  const all = state.suspects.length;
  const decided = state.suspects.filter((suspect) => !isOpen(suspect)).length;
  const bar = find(".progress .bar");
  bar.setAttribute("aria-valuemax", all);
  bar.setAttribute("aria-valuenow", decided);
  bar.firstElementChild.style.width = `${(100 * decided) / all}%`;
  const { seconds_each: pace, precision, sample } = state.progress;
  const left = pace && decided < all ? ` · ${duration(pace * (all - decided))} left` : "";
  find("#progress").textContent = `${decided.toLocaleString()} of ${all.toLocaleString()} decided${left}`;
  const sentences = [];
  if (precision.judged) sentences.push(make("span", {}, `${wrong(precision)}`));
  if (sample.judged) sentences.push(make("span", {}, `at random, ${wrong(sample)}`));
  find("#precision").replaceChildren(...sentences);
}

const percent = (share) => Math.round(100 * share);

const wrong = ({ wrong: hits, judged, low, high }) =>
  `${hits} of ${judged} ${judged === 1 ? "was" : "were"} wrong: ${percent(low)}–${percent(high)}%`;

function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.round(minutes / 6) / 10} h`;
}

function drawSaved() {
  const waiting = saver.waiting.length;
  const words = { saved: "Saved", saving: "Saving…", offline: waiting ? `Offline: ${waiting} not saved yet` : "Offline" };
  const saved = find("#saved");
  saved.textContent = words[saver.state];
  saved.className = saver.state;
  saved.title = saver.problem ?? "Every decision is in the run folder";
}

function drawSide() {
  const { filters } = state;
  for (const mode of ["ranked", "sample"]) find(`#${mode}`).setAttribute("aria-pressed", state.mode === mode);
  find("#mode-note").textContent =
    state.mode === "sample"
      ? `${state.queue.length} flagged labels, drawn at random: they tell how many of all flags are right.`
      : "";
  for (const select of document.querySelectorAll(".filters select")) select.disabled = state.mode === "sample";
  find("#status").value = filters.status;
  for (const field of ["given", "suggested", "group"]) find(`#${field}`).value = filters[field] ?? "";
  const found = queues.pairs(state.suspects, state.decided);
  const chosen = (pair) => pair.given === filters.given && pair.suggested === filters.suggested;
  const focused = document.activeElement?.dataset.pair;
  find("#pairs").replaceChildren(
    ...found.slice(0, MOST_PAIRS).map((pair) =>
      make(
        "li",
        {},
        make(
          "button",
          {
            type: "button",
            className: pair.open ? "" : "done",
            "data-pair": `${pair.given}:${pair.suggested}`,
            "aria-pressed": chosen(pair) && state.mode === "ranked",
            title: `${pair.open} open of ${pair.all}`,
            onclick: () => show("grid", pair),
          },
          make("span", {}, name(labelName(pair.given)), " → ", name(labelName(pair.suggested))),
          make("span", { className: "count" }, pair.open ? String(pair.open) : "✓"),
        ),
      ),
    ),
  );
  if (focused) find(`[data-pair="${focused}"]`)?.focus();
}

function fillFilters() {
  const fill = (field, options) => {
    find(`#${field}`).replaceChildren(
      make("option", { value: "" }, "any"),
      ...options.map(([value, text]) => make("option", { value }, text)),
    );
    find(`#${field}`).addEventListener("change", (event) => {
      const { value } = event.target;
      state.filters[field] = value === "" ? null : field === "group" ? value : Number(value);
      collect();
    });
  };
  for (const field of ["given", "suggested"]) {
    const numbers = [...new Set(state.suspects.map((suspect) => suspect[field]))].filter((number) => number >= 0);
    fill(field, numbers.sort((one, other) => one - other).map((number) => [number, visible(labelName(number))]));
  }
  if (state.suspects[0]?.group !== undefined) {
    find("#group-filter").hidden = false;
    fill("group", [...new Set(state.suspects.map((suspect) => suspect.group))].sort().map((group) => [group, visible(group)]));
  }
  find("#status").addEventListener("change", (event) => {
    state.filters.status = event.target.value;
    if (state.view === "grid") state.view = "one";
    collect();
  });
}

let fading;
function toast(...content) {
  find(".toast")?.remove();
  document.body.append(make("p", { className: "toast", role: "status" }, ...content));
  clearTimeout(fading);
  fading = setTimeout(() => find(".toast")?.remove(), 2_500);
}

// ---------------------------------------------------------------------------------------------------------------
// Keys and buttons

const KEYS = {
  a: accept,
  Enter: () => (find("#next-pair") ? find("#next-pair").click() : accept()),
  k: () => current() && choose(current().given),
  u: () => choose(null),
  z: undo,
  g: () => show(state.view === "grid" ? "one" : "grid"),
  h: () => find("#blind").click(),
  A: acceptAll,
  ArrowLeft: () => state.view === "one" && move(-1),
  ArrowRight: () => state.view === "one" && move(1),
  "/": () => find("#finder")?.focus(),
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const { target } = event;
  if (target.matches("input:not([type=checkbox]), select, textarea")) return;
  // What has the focus is meant by these.
  if (["Enter", " "].includes(event.key) && target.matches("button, a, summary, input")) return;
  const numbered = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
  if (!numbered && !KEYS[event.key]) return;
  event.preventDefault();
  // A key held down is one decision.
  if (event.repeat && !event.key.startsWith("Arrow")) return;
  if (!numbered) KEYS[event.key]();
  else {
    const button = find(`[data-key="${numbered}"]`);
    if (button) choose(Number(button.dataset.label));
  }
}

async function write(event) {
  const { export: what, mode } = event.currentTarget.dataset;
  const note = find("#exported");
  note.textContent = "Writing…";
  try {
    await saver.flush();
    const { path, address } = await post("/api/export", { what, mode }, { patient: true });
    note.textContent = `Written: ${path}`;
    make("a", { href: address, download: "" }).click();
  } catch (error) {
    note.textContent = `Not written: ${error.message}`;
  }
}

function listen() {
  document.addEventListener("keydown", pressed);
  find("#ranked").addEventListener("click", () => {
    state.mode = "ranked";
    state.view = "one";
    state.filters = { ...EVERYTHING };
    collect();
  });
  find("#sample").addEventListener("click", () => {
    state.mode = "sample";
    state.view = "one";
    state.filters = { ...EVERYTHING };
    collect();
  });
  find("#blind").addEventListener("change", (event) => {
    state.blind = event.target.checked;
    if (state.blind) {
      state.view = "one";
      state.filters.suggested = null;
    }
    collect(current()?.row ?? null);
  });
  // Once chosen with a pointer, keys are for the suspect, and do not choose in the list again.
  for (const select of document.querySelectorAll(".filters select")) {
    let pointed = false;
    select.addEventListener("pointerdown", () => (pointed = true));
    select.addEventListener("keydown", () => (pointed = false));
    select.addEventListener("change", () => pointed && select.blur());
  }
  for (const button of document.querySelectorAll("[data-export]")) button.addEventListener("click", write);
  for (const menu of document.querySelectorAll(".menu")) {
    menu.addEventListener("keydown", (event) => event.key === "Escape" && (menu.open = false));
    document.addEventListener("click", (event) => !menu.contains(event.target) && (menu.open = false));
  }
  // After a click, keys are for the next suspect again.
  document.addEventListener("click", (event) => event.detail > 0 && event.target.closest("button, input[type=checkbox]")?.blur());
  channel.addEventListener("message", (event) => {
    heard(event.data);
    drawSide();
  });
  window.addEventListener("focus", async () => {
    await look();
    catchUp();
  });
  document.addEventListener("visibilitychange", () => !document.hidden && look());
  setInterval(() => !document.hidden && look(), POLL);
  window.addEventListener("beforeunload", (event) => saver.waiting.length && event.preventDefault());
}

async function start() {
  // The token is in a cookie by now, and need not stand in the history.
  history.replaceState(null, "", "/");
  const answer = await get("/api/suspects");
  speakOf(answer.run);
  channel = new BroadcastChannel(`stepe-review:${answer.run}`);
  state.classes = answer.classes;
  state.progress = answer.progress;
  state.suspects = answer.row.map((row, i) => ({
    row,
    rank: i + 1,
    given: answer.given[i],
    suggested: answer.suggested[i],
    suspicion: answer.suspicion[i],
    sample: answer.sample[i],
    group: answer.group?.[i],
  }));
  state.byRow = new Map(state.suspects.map((suspect) => [suspect.row, suspect]));
  for (const [row, [verdict, label]] of Object.entries(answer.decided)) put(Number(row), { verdict, label });
  saver = new Saver(answer.run, answer.entry, told, drawSaved);
  for (const { choices = [] } of saver.waiting) {
    for (const { row, label } of choices) put(row, { verdict: verdictOf(state.byRow.get(row), label), label });
  }
  find("#data").textContent = answer.data;
  find("#command").textContent = answer.command;
  document.title = `${answer.data} · stepe review`;
  fillFilters();
  listen();
  collect();
  saver.send();
}

start().catch((error) => {
  find("#main").replaceChildren(make("p", { className: "failed" }, `The review cannot be shown: ${error.message}`));
});

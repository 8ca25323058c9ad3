// The three things the page shows: one suspect, a grid of them, and that there is nothing left.

import { id, key, name } from "./dom.js";
import { make } from "./elements.js";

const MATCHES = 8;
const EXAMPLES = 6;

const button = (properties, ...content) => make("button", { type: "button", ...properties }, ...content);

export function drawOne(context) {
  const { state, previews, labelName } = context;
  const [suspect] = context.shown;
  const detail = previews.details.get(suspect.row);
  const decision = state.decided.get(suspect.row);
  const known = !state.blind && suspect.suggested >= 0;
  const question = make(
    "div",
    { className: "question" },
    make(
      "p",
      { className: "where" },
      make("span", {}, `${(state.place + 1).toLocaleString()} of ${state.queue.length.toLocaleString()}`),
      detail ? make("span", {}, "id ", id(detail)) : null,
      state.blind || suspect.suspicion === null
        ? null
        : make("span", {}, `suspicion ${(Math.floor(suspect.suspicion * 1000) / 1000).toFixed(3)}`),
      make("span", { className: "moves" }, ...moves(context)),
    ),
    make(
      "div",
      { className: "labels" },
      make("div", {}, make("small", {}, "given"), make("strong", { className: "given" }, name(labelName(suspect.given)))),
      known ? make("span", { className: "arrow" }, "→") : null,
      known
        ? make(
            "div",
            {},
            make("small", {}, "suggested"),
            make("strong", { className: "suggestion" }, name(labelName(suspect.suggested))),
          )
        : null,
    ),
    decision ? drawVerdict(context, decision) : null,
    make(
      "div",
      { className: "verdicts" },
      known ? button({ className: "accept", onclick: context.actions.accept }, key("a"), "Accept ", name(labelName(suspect.suggested))) : null,
      button({ className: "keep", onclick: () => context.actions.choose(suspect.given) }, key("k"), "Keep ", name(labelName(suspect.given))),
      button({ className: "unsure", onclick: () => context.actions.choose(null) }, key("u"), "Not sure"),
    ),
    make("div", { className: "choices" }, ...drawClasses(context, suspect, detail), drawFinder(context)),
    state.blind || !detail ? null : make("p", { className: "why" }, make("b", {}, "Why flagged: "), make("bdi", {}, detail.reason)),
  );
  const article = make(
    "article",
    { className: "suspect", "data-row": suspect.row },
    make("div", { className: "preview" }, previews.show(suspect.row)),
    question,
  );
  return [article, drawExamples(context, suspect, detail)];
}

function moves({ actions, state }) {
  return [
    undoButton({ actions, state }),
    button({ onclick: () => actions.move(-1), disabled: state.place === 0, title: "Back (←)" }, "←"),
    button({ onclick: () => actions.move(1), disabled: state.place >= state.queue.length - 1, title: "On (→)" }, "→"),
    state.blind ? null : button({ onclick: () => actions.show("grid"), title: "All of this pair" }, key("g"), "Grid"),
  ].filter(Boolean);
}

const undoButton = ({ actions, state }) =>
  button({ className: "undo", onclick: actions.undo, disabled: !state.mine.length }, key("z"), "Undo");

function drawVerdict({ labelName, words }, { verdict, label }) {
  const chosen = verdict === "relabelled" ? ["relabelled: ", name(labelName(label))] : [words[verdict]];
  return make("p", { className: `verdict ${verdict}` }, "Decided: ", ...chosen);
}

// In a fixed order where the suggestion is hidden, so that the order does not tell.
function drawClasses({ state, labelName, actions }, suspect, detail) {
  if (!detail) return [];
  const likely = state.blind ? [...detail.likely].sort((one, other) => one - other) : detail.likely;
  return likely.map((number, i) =>
    button(
      { className: "choice", "data-key": i + 1, "data-label": number, onclick: () => actions.choose(number) },
      key(i + 1),
      name(labelName(number)),
    ),
  );
}

function drawFinder({ state, actions }) {
  const list = make("ul", { className: "matches", role: "listbox", id: "matches" });
  let matches = [];
  let chosen = 0;
  const choose = (number) => {
    input.blur();
    actions.choose(number);
  };
  const redraw = () => {
    list.replaceChildren(
      ...matches.map((number, i) =>
        make(
          "li",
          { role: "option", "aria-selected": i === chosen, onmousedown: (event) => event.preventDefault(), onclick: () => choose(number) },
          name(state.classes[number]),
        ),
      ),
    );
  };
  const input = make("input", {
    id: "finder",
    type: "text",
    autocomplete: "off",
    spellcheck: false,
    placeholder: `find one of ${state.classes.length} classes`,
    "aria-label": "Find a class",
    "aria-controls": "matches",
    oninput: () => {
      matches = search(state.classes, input.value);
      chosen = 0;
      redraw();
    },
    onkeydown: (event) => {
      if (event.key === "Enter" && matches.length) {
        choose(matches[chosen]);
      } else if (event.key === "Escape") {
        input.value = "";
        matches = [];
        redraw();
        input.blur();
      } else if (["ArrowDown", "ArrowUp"].includes(event.key) && matches.length) {
        event.preventDefault();
        chosen = (chosen + (event.key === "ArrowDown" ? 1 : matches.length - 1)) % matches.length;
        redraw();
      }
    },
  });
  return make("div", { className: "finder" }, key("/"), input, list);
}

// Names that begin with what was typed, then names with a word that does, then the others that hold it.
export function search(classes, text) {
  const wanted = text.trim().toLocaleLowerCase();
  if (!wanted) return [];
  const found = [];
  classes.forEach((each, number) => {
    const candidate = each.toLocaleLowerCase();
    const at = candidate.indexOf(wanted);
    if (at < 0) return;
    const score = candidate === wanted ? 0 : at === 0 ? 1 : /[\s_\-/.]/.test(candidate[at - 1]) ? 2 : 3;
    found.push([score, candidate.length, number]);
  });
  found.sort((one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]);
  return found.slice(0, MATCHES).map(([, , number]) => number);
}

function drawExamples({ state, previews, labelName }, suspect, detail, most = EXAMPLES) {
  const classes = state.blind ? [suspect.given] : [suspect.given, suspect.suggested];
  if (!detail || !Object.keys(previews.previews.get(suspect.row) ?? {}).length) return make("div", { className: "examples" });
  const groups = [...new Set(classes)]
    .filter((number) => number >= 0)
    .map((number) => {
      const rows = (detail.examples[number] ?? []).filter((row) => row !== suspect.row);
      const pictures = rows.some((row) => previews.previews.get(row)?.picture);
      const shown = rows.slice(0, pictures ? EXAMPLES : most).map((row) => previews.show(row, { small: true }));
      return make(
        "section",
        { className: number === suspect.given ? "of-given" : "of-suggested" },
        make("h3", {}, shown.length ? "Clean examples of " : "No label is beyond doubt that says ", name(labelName(number))),
        make("div", { className: "row" }, ...shown),
      );
    });
  return make("div", { className: "examples" }, ...groups);
}

export function drawGrid(context) {
  const { state, previews, labelName, actions, shown } = context;
  const [first] = shown;
  const left = state.queue.filter(context.isOpen).length;
  const chosen = shown.filter((suspect) => !state.leftOut.has(suspect.row)).length;
  const head = make(
    "div",
    { className: "grid-head" },
    make(
      "div",
      { className: "labels" },
      make("div", {}, make("small", {}, "given"), make("strong", { className: "given" }, name(labelName(first.given)))),
      make("span", { className: "arrow" }, "→"),
      make("div", {}, make("small", {}, "suggested"), make("strong", { className: "suggestion" }, name(labelName(first.suggested)))),
    ),
    make(
      "div",
      { className: "verdicts" },
      button(
        { className: "accept", id: "accept-all", onclick: actions.acceptAll, disabled: !chosen || first.suggested < 0 },
        key("Shift A"),
        `Accept all ${chosen} on screen`,
      ),
      undoButton(context),
      button({ onclick: () => actions.show("one") }, key("g"), "One by one"),
    ),
    make("p", { className: "note" }, `${left} open. Click one to leave it out; it stays open, to be looked at by itself.`),
  );
  const cards = shown.map((suspect) => {
    const out = state.leftOut.has(suspect.row);
    const detail = previews.details.get(suspect.row);
    return button(
      {
        className: out ? "card out" : "card",
        "data-row": suspect.row,
        "aria-pressed": !out,
        onclick: () => {
          if (out) state.leftOut.delete(suspect.row);
          else state.leftOut.add(suspect.row);
          actions.draw();
        },
      },
      previews.show(suspect.row, { small: true }),
      make("small", {}, detail ? id(detail) : ""),
    );
  });
  const examples = drawExamples(context, first, previews.details.get(first.row), 3);
  return [head, examples, make("div", { className: "grid" }, ...cards)];
}

export function drawDone({ state, labelName, actions }, queues) {
  const all = state.suspects.length;
  const decided = state.suspects.filter((suspect) => queues.statusOf(state.decided, suspect.row) !== "open").length;
  const next = queues.pairs(state.suspects, state.decided)[0];
  const nothing = !state.queue.length && state.filters.status !== "open";
  const title = decided === all ? "All suspects are decided." : nothing ? "Nothing here." : "Done here.";
  const offers = [];
  if (state.view === "grid" && next.open) {
    offers.push(
      button({ className: "accept", id: "next-pair", onclick: () => actions.show("grid", next) }, "Next pair: ", name(labelName(next.given)), " → ", name(labelName(next.suggested))),
    );
  }
  if (state.mode === "sample" && decided < all) {
    offers.push(button({ className: "accept", onclick: () => actions.collect() }, "Draw more at random"));
  }
  offers.push(undoButton({ actions, state }));
  return make(
    "div",
    { className: "done" },
    make("h2", {}, title),
    make("p", {}, `${decided.toLocaleString()} of ${all.toLocaleString()} decided.`),
    make("div", { className: "verdicts" }, ...offers),
    make("p", { className: "note" }, "Export has the decisions and the cleaned data, and says how to train with them."),
  );
}

// The gallery: cards of the suspects that pass the filters, in the order asked for, made as they are scrolled to.

const BATCH = 60;

class Gallery {
  constructor(list, decisions, onDecide) {
    this.list = list;
    this.decisions = decisions;
    this.onDecide = onDecide;
    this.cards = new Map();
    this.view = [];
    this.made = 0;
    this.active = null;
    this.inputs = Object.fromEntries(
      ["given", "suggested", "decision", "order", "search"].map((name) => [name, byId(`by-${name}`)]),
    );
    this.fillClasses(this.inputs.given, "given");
    this.fillClasses(this.inputs.suggested, "suggested");
    for (const input of Object.values(this.inputs)) input.addEventListener("input", () => this.show());
    this.cut = new Cut(() => this.show());
    this.end = byId("gallery-end");
    this.observer = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && this.more(), {
      rootMargin: "800px",
    });
    this.show();
  }

  fillClasses(select, side) {
    const counts = new Map();
    for (const suspect of page.suspects) counts.set(suspect[side], (counts.get(suspect[side]) ?? 0) + 1);
    const ranked = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    for (const [number, count] of ranked) {
      const name = visible(nameOf(number));
      const short = name.length > 40 ? `${name.slice(0, 39)}…` : name;
      select.append(make("option", { value: String(number), textContent: `${short} (${count})` }));
    }
  }

  filter(given, suggested) {
    this.inputs.given.value = given;
    this.inputs.suggested.value = suggested;
    this.inputs.search.value = "";
    this.inputs.decision.value = "";
    this.cut.reset();
    this.show();
  }

  show() {
    const { given, suggested, decision, order, search } = this.inputs;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const decided = this.decisions.current();
    this.view = page.suspects.filter(
      (suspect) =>
        this.cut.passes(suspect) &&
        (given.value === "" || String(suspect.given) === given.value) &&
        (suggested.value === "" || String(suspect.suggested) === suggested.value) &&
        (decision.value === "" || decided.has(suspect.row) === (decision.value === "decided")) &&
        words.every((word) => wordsOf(suspect).includes(word)),
    );
    this.view.sort(ORDERS[order.value]);
    this.list.replaceChildren();
    this.made = 0;
    this.active = null;
    const all = page.suspects.length;
    const some = this.view.length === all ? "" : `${thousands(this.view.length)} of `;
    byId("shown").textContent = `${some}${thousands(all)} shown`;
    byId("nobody").hidden = this.view.length > 0;
    byId("clear").hidden = this.cut.isOwn && !(given.value || suggested.value || decision.value || search.value);
    this.more();
    if (this.view.length) this.activate(this.view[0], false);
  }

  more() {
    const next = this.view.slice(this.made, this.made + BATCH);
    this.list.append(...next.map((suspect) => this.cardOf(suspect)));
    this.made += next.length;
    // Asked anew: an end that is still in sight would not be told again.
    this.observer.unobserve(this.end);
    if (this.made < this.view.length) this.observer.observe(this.end);
  }

  cardOf(suspect) {
    if (!this.cards.has(suspect.row)) {
      const card = makeCard(suspect, (verdict) => this.onDecide(suspect, verdict));
      card.addEventListener("focusin", () => this.activate(suspect, false));
      this.cards.set(suspect.row, card);
    }
    this.mark(suspect);
    return this.cards.get(suspect.row);
  }

  mark(suspect, decided = this.decisions.current()) {
    const card = this.cards.get(suspect.row);
    if (!card) return;
    const decision = decided.get(suspect.row);
    card.dataset.verdict = decision?.verdict ?? "";
    const said = card.querySelector(".verdict");
    said.replaceChildren();
    if (decision) said.append(decision.verdict, ...(decision.label === null ? [] : [": ", named(decision.label)]));
  }

  markAll() {
    const decided = this.decisions.current();
    for (const suspect of page.suspects) this.mark(suspect, decided);
  }

  // One card at a time is in the tab order; the arrows lead to the others.
  activate(suspect, focus = true) {
    const card = this.cardOf(suspect);
    if (this.active !== suspect) {
      if (this.active) this.cards.get(this.active.row).tabIndex = -1;
      this.active = suspect;
      card.tabIndex = 0;
      const offered = suspect.likely.map((number, i) =>
        make(
          "button",
          { type: "button", onclick: () => this.onDecide(suspect, "relabelled", number) },
          make("kbd", { textContent: String(i + 1) }),
          named(number),
        ),
      );
      // Beside the other keys rather than in the card, which would grow and push its neighbours about.
      byId("likely").replaceChildren(`${suspect.rank}. may be `, ...offered);
    }
    if (focus) {
      card.focus({ preventScroll: true });
      card.scrollIntoView({ block: "nearest" });
    }
  }

  move(steps) {
    const place = this.view.indexOf(this.active) + steps;
    if (place < 0 || place >= this.view.length) return;
    while (place >= this.made) this.more();
    this.activate(this.view[place]);
  }

  get columns() {
    const tops = [...this.list.children].map((card) => card.offsetTop);
    return tops.filter((top) => top === tops[0]).length || 1;
  }

  goTo(suspect) {
    if (!this.view.includes(suspect)) this.filter("", "");
    while (this.view.indexOf(suspect) >= this.made) this.more();
    this.activate(suspect);
  }
}

const pairCounts = new Map();
const pairOf = (suspect) => `${suspect.given} ${suspect.suggested}`;
for (const suspect of page.suspects) pairCounts.set(pairOf(suspect), (pairCounts.get(pairOf(suspect)) ?? 0) + 1);

const byRank = (a, b) => a.rank - b.rank;
const byName = (side) => (a, b) => nameOf(a[side]).localeCompare(nameOf(b[side])) || byRank(a, b);
const ORDERS = {
  rank: byRank,
  suspicion: (a, b) => (a.suspicion ?? 2) - (b.suspicion ?? 2) || byRank(a, b),
  given: byName("given"),
  suggested: byName("suggested"),
  pair: (a, b) =>
    pairCounts.get(pairOf(b)) - pairCounts.get(pairOf(a)) || pairOf(a).localeCompare(pairOf(b)) || byRank(a, b),
};

function wordsOf(suspect) {
  suspect.words ??= [
    suspect.id,
    nameOf(suspect.given),
    nameOf(suspect.suggested),
    suspect.text ?? "",
    ...(suspect.cells ?? []).flat(),
  ]
    .join(" ")
    .toLowerCase();
  return suspect.words;
}

function makeLook(suspect) {
  if (suspect.picture) {
    return make("img", {
      className: suspect.pixels <= page.pixelated ? "pixelated" : "",
      src: suspect.picture,
      alt: `Sample ${suspect.id}`,
      loading: "lazy",
      decoding: "async",
    });
  }
  if (suspect.text !== undefined) return make("p", { className: "text", dir: "auto", textContent: suspect.text });
  if (suspect.cells) {
    const rows = suspect.cells.map(([name, cell]) =>
      make("div", {}, make("dt", { textContent: name }), make("dd", { dir: "auto", textContent: cell })),
    );
    return make("dl", { className: "cells" }, ...rows);
  }
  return null;
}

// Rounded down: only what is certain is 1.
const suspicionOf = (suspect) =>
  suspect.suspicion === null ? "–" : (Math.floor(suspect.suspicion * 1000 + 1e-9) / 1000).toFixed(3);

function makeCard(suspect, decide) {
  const button = (key, words, verdict, title) =>
    make(
      "button",
      { type: "button", tabIndex: -1, title, onclick: () => decide(verdict) },
      make("kbd", { textContent: key }),
      words,
    );
  const suggested = nameOf(suspect.suggested);
  const look = makeLook(suspect);
  return make(
    "li",
    { className: "card", tabIndex: -1, "data-row": suspect.row },
    look && make("div", { className: "look" }, look),
    make(
      "p",
      { className: "labels" },
      named(suspect.given, "given"),
      make(
        "span",
        { className: "to" },
        make("span", { "aria-hidden": "true", textContent: "→" }),
        make("span", { className: "unseen", textContent: " might be " }),
        named(suspect.suggested, "suggested"),
      ),
    ),
    make(
      "p",
      { className: "facts" },
      make("span", { textContent: `${suspect.rank}. ` }),
      make("bdi", { className: "name", textContent: suspect.id, title: suspect.id }),
      make("span", { className: "suspicion", textContent: suspicionOf(suspect), title: "suspicion" }),
    ),
    make("p", { className: "reason", textContent: suspect.reason || "not flagged, but next in line" }),
    make("p", { className: "verdict" }),
    make(
      "div",
      { className: "buttons" },
      isClass(suspect.suggested) ? button("a", "accept", "accepted", `The label should be ${suggested}`) : null,
      button("k", "keep", "kept", `The label ${nameOf(suspect.given)} is right`),
      button("o", "other", "other", "Choose another class"),
      button("u", "unsure", "unsure", "Not sure"),
    ),
  );
}

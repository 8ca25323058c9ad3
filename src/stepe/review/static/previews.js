// What suspects and examples look like: fetched ahead, so that the next one is there when it is its turn.

import { get } from "./api.js";
import { make } from "./elements.js";

const AHEAD = 20;
const FEW_AHEAD = 10;
// Small pictures are shown pixel by pixel; of the smallest, a blur is easier to recognise than a mosaic.
const TINY = 16;
const SMALL = 64;

export class Previews {
  constructor(arrived) {
    this.arrived = arrived;
    this.details = new Map();
    this.previews = new Map();
    this.pictures = new Map();
    this.asked = new Set();
  }

  // See to it that these suspects are there, and some of those after them.
  async fetch(rows) {
    const missing = rows.filter((row) => !this.asked.has(row));
    const urgent = rows.slice(0, FEW_AHEAD).some((row) => !this.asked.has(row));
    if (!urgent) return;
    const wanted = missing.slice(0, AHEAD);
    wanted.forEach((row) => this.asked.add(row));
    try {
      const answer = await get(`/api/details?rows=${wanted.join(",")}`);
      for (const [row, detail] of Object.entries(answer.details)) this.details.set(Number(row), detail);
      for (const [row, preview] of Object.entries(answer.previews)) {
        this.previews.set(Number(row), preview);
        if (preview.picture) this.picture(Number(row));
      }
    } catch {
      wanted.forEach((row) => this.asked.delete(row));
      return;
    }
    this.arrived(wanted);
  }

  // An element that is loaded before it is shown, and then moved into the page: a row is there once at a time.
  picture(row) {
    if (!this.pictures.has(row)) {
      const image = make("img", { alt: "", draggable: false, decoding: "sync" });
      image.addEventListener("load", () =>
        image.classList.toggle("pixels", TINY < image.naturalWidth && image.naturalWidth <= SMALL),
      );
      image.src = `/api/picture/${row}`;
      this.pictures.set(row, image);
    }
    return this.pictures.get(row);
  }

  show(row, { small = false } = {}) {
    const preview = this.previews.get(row);
    if (!preview) return make("p", { className: "note" }, this.asked.has(row) ? "Loading…" : "");
    if (preview.picture) return make("div", { className: "picture" }, this.picture(row));
    if (preview.text) return make("p", { className: "text", dir: "auto" }, preview.text);
    if (preview.cells) return cells(Object.entries(preview.cells), small);
    return make("p", { className: "note" }, "Nothing to show: look it up by its id.");
  }
}

function cells(entries, small) {
  const rows = (small ? entries.slice(0, 6) : entries).map(([column, value]) =>
    make("tr", {}, make("th", { scope: "row", dir: "auto" }, column), make("td", { dir: "auto" }, value)),
  );
  return make("table", { className: "cells" }, make("tbody", {}, ...rows));
}

// Where a person cuts: the slider below the histogram of suspicion, and what is known of the labels above it.

class Cut {
  constructor(onChange) {
    this.slider = byId("by-cut");
    this.told = page.cuts;
    this.bars = [...byId("suspicions").children];
    this.slider.addEventListener("input", () => {
      this.tell();
      onChange();
    });
    byId("cutting").hidden = false;
    this.tell();
  }

  get place() {
    return Number(this.slider.value);
  }

  // Where the run cuts, every suspect is shown, and those next in line where there are few.
  get isOwn() {
    return this.place === this.told.start;
  }

  reset() {
    this.slider.value = this.told.start;
    this.tell();
  }

  passes(suspect) {
    return this.isOwn || (suspect.suspicion !== null && suspect.suspicion >= this.place / 100);
  }

  tell() {
    const value = (this.place / 100).toFixed(2);
    this.bars.forEach((bar, i) => bar.classList.toggle("above", i >= this.place));
    byId("above").textContent = this.above(value);
    byId("expected").textContent = this.expected();
    this.slider.setAttribute("aria-valuetext", value);
    byId("cut-here").hidden = this.isOwn;
    byId("cut-command").textContent = `stepe cleaned RUN --min-suspicion ${value}`;
  }

  above(value) {
    const count = this.told.above[this.place];
    const labels = `${thousands(count)} label${count === 1 ? "" : "s"}`;
    const are = count === 1 ? "is" : "are";
    if (!this.isOwn) {
      const listed = page.suspects.filter((suspect) => this.passes(suspect)).length;
      const fewer = listed < count ? ` ${thousands(listed)} of them ${listed === 1 ? "is" : "are"} listed below.` : "";
      return `${labels} ${are} wrong with a probability of ${value} or more.${fewer}`;
    }
    return this.told.usual
      ? `${labels} ${are} more likely wrong than right: ${count === 1 ? "it is" : "these are"} flagged.`
      : `${labels} ${are} flagged.`;
  }

  // Only what was judged in random order tells of the others.
  expected() {
    const precision = this.told.precision[this.place];
    if (this.told.above[this.place] === 0) return "";
    if (precision) {
      const [wrong, judged, low, high] = precision;
      const range = `${Math.round(100 * low)}–${Math.round(100 * high)}%`;
      return `${range} of them are really wrong (90% range): ${wrong} of ${judged} reviewed at random were.`;
    }
    if (this.isOwn && this.told.known) return `${this.told.known} of them are really wrong: the truth is known here.`;
    return "Review 20 at random to know how many of them are really wrong.";
  }
}

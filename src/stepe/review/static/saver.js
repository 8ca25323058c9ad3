// Decisions on their way to the disk. One is kept in the browser until the server has confirmed it, is sent again for
// as long as that takes, and has an id by which the server knows it from the first time.

import { Refused, post } from "./api.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 5_000;
const AT_ONCE = 200;

export class Saver {
  // `told` hears every answer, `changed` that the state below is another one.
  constructor(run, since, told, changed) {
    this.prefix = `stepe-review:${run}:`;
    this.since = since;
    this.told = told;
    this.changed = changed;
    this.problem = null;
    this.sending = false;
    this.wait = FIRST_WAIT;
    // A page that was closed, or crashed, before it could send everything left it here.
    this.waiting = Object.keys(localStorage)
      .filter((name) => name.startsWith(this.prefix))
      .map((name) => JSON.parse(localStorage.getItem(name)))
      .sort((one, other) => one.order - other.order);
  }

  get state() {
    if (this.problem) return "offline";
    return this.waiting.length ? "saving" : "saved";
  }

  add(action) {
    const kept = { ...action, order: performance.timeOrigin + performance.now() };
    this.waiting.push(kept);
    try {
      localStorage.setItem(this.prefix + kept.id, JSON.stringify(kept));
    } catch {
      // Storage is full or switched off: it is still sent, and closing the page warns.
    }
    this.send();
  }

  async send() {
    if (this.sending || !this.waiting.length) {
      this.changed();
      return;
    }
    this.sending = true;
    this.changed();
    const actions = this.waiting.slice(0, AT_ONCE);
    try {
      const answer = await post("/api/actions", {
        actions: actions.map(({ order, rows, ...action }) => action),
        since: this.since,
      });
      this.waiting.splice(0, actions.length);
      for (const action of actions) localStorage.removeItem(this.prefix + action.id);
      this.problem = null;
      this.wait = FIRST_WAIT;
      this.told(answer);
    } catch (error) {
      this.problem = error instanceof Refused ? error.message : "The server does not answer; is `stepe review` running?";
    }
    this.sending = false;
    this.changed();
    if (!this.waiting.length) return;
    if (!this.problem) {
      this.send();
      return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send(), this.wait);
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }

  // Whether a decision about a row is under way: what the server says about it meanwhile is older.
  holds(row) {
    return this.waiting.some((action) => action.rows.includes(row));
  }

  async flush() {
    while (this.waiting.length && !this.problem) {
      this.send();
      await new Promise((done) => setTimeout(done, 20));
    }
    if (this.problem) throw new Error(this.problem);
  }
}

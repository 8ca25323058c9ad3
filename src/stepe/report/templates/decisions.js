// What a reviewer decided: a log, of which the last entry about a row counts and from which undo takes the last.
// The browser keeps it under the run's own key, so it survives a reload; every tab reads before it writes.

class Decisions {
  constructor(key) {
    this.key = key;
    this.log = [];
    this.kept = true;
    this.exported = 0;
    try {
      localStorage.setItem(`${key}:test`, "1");
      localStorage.removeItem(`${key}:test`);
    } catch {
      this.kept = false;
    }
    this.read();
  }

  read() {
    if (!this.kept) return;
    try {
      const log = JSON.parse(localStorage.getItem(this.key) ?? "[]");
      if (Array.isArray(log)) this.log = log;
    } catch {
      this.log = [];
    }
  }

  write() {
    if (!this.kept) return;
    try {
      localStorage.setItem(this.key, JSON.stringify(this.log));
    } catch {
      this.kept = false;
    }
  }

  // verdict: accepted, kept, relabelled or unsure; label: the number of the resulting class, or null
  add(row, verdict, label) {
    this.read();
    this.log.push([row, verdict, label]);
    this.write();
  }

  undo() {
    this.read();
    const last = this.log.pop();
    this.write();
    return last === undefined ? null : last[0];
  }

  current() {
    return new Map(this.log.map(([row, verdict, label]) => [row, { verdict, label }]));
  }
}

// A spreadsheet must not take a name for a formula. One quote is put in front, also of what begins with quotes already,
// so that taking one away gives back every name.
const unformulated = (text) => (/^'*[=+\-@\t\r\n]/.test(text) ? `'${text}` : text);
const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function reviewedCsv(suspects, decided) {
  const lines = [["row", "id", "split", "given_label", "suggested_label", "verdict", "label"]];
  for (const suspect of suspects) {
    const decision = decided.get(suspect.row);
    if (!decision) continue;
    const suggested = suspect.suggested < 0 ? "" : nameOf(suspect.suggested);
    const label = decision.label === null ? "" : nameOf(decision.label);
    lines.push([
      String(suspect.row),
      unformulated(suspect.id),
      suspect.split,
      unformulated(nameOf(suspect.given)),
      unformulated(suggested),
      decision.verdict,
      unformulated(label),
    ]);
  }
  return lines.map((cells) => `${cells.map(quoted).join(",")}\n`).join("");
}

// Which suspects are gone through, in which order. Pure functions of the suspects and what was decided.

export const SAMPLE = 50;

export function statusOf(decided, row) {
  return decided.get(row)?.verdict ?? "open";
}

function fits(status, wanted) {
  if (wanted === "all") return true;
  return wanted === "decided" ? status !== "open" : status === wanted;
}

export function filtered(suspects, decided, filters) {
  return suspects.filter(
    (suspect) =>
      fits(statusOf(decided, suspect.row), filters.status) &&
      (filters.given === null || suspect.given === filters.given) &&
      (filters.suggested === null || suspect.suggested === filters.suggested) &&
      (filters.group === null || suspect.group === filters.group),
  );
}

// The first so many of the random order.
export function sampled(suspects, size) {
  return [...suspects].sort((one, other) => one.sample - other.sample).slice(0, size);
}

// How large a sample to offer: the next multiple that holds something open.
export function sampleSize(suspects, decided) {
  const first = Math.min(
    ...suspects.filter((suspect) => statusOf(decided, suspect.row) === "open").map((suspect) => suspect.sample),
    suspects.length,
  );
  return Math.min(suspects.length, SAMPLE * (Math.floor(first / SAMPLE) + 1));
}

// Given and suggested label together, those with most open first.
export function pairs(suspects, decided) {
  const found = new Map();
  for (const suspect of suspects) {
    const name = `${suspect.given}:${suspect.suggested}`;
    const pair = found.get(name) ?? { given: suspect.given, suggested: suspect.suggested, open: 0, all: 0 };
    pair.all += 1;
    pair.open += statusOf(decided, suspect.row) === "open" ? 1 : 0;
    found.set(name, pair);
  }
  return [...found.values()].sort(
    (one, other) => other.open - one.open || other.all - one.all || one.given - other.given || one.suggested - other.suggested,
  );
}

// The next open place after one, or, where there is none, the first open one; -1: all are decided.
export function nextOpen(queue, decided, place) {
  for (let step = 1; step <= queue.length; step += 1) {
    const at = (place + step) % queue.length;
    if (statusOf(decided, queue[at].row) === "open") return at;
  }
  return -1;
}

// Talking to the server.

const PATIENCE = 15_000;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Named with every request: by the time it arrives, the server may be another run's.
let run = null;

export function speakOf(digest) {
  run = digest;
}

async function ask(address, { patient = false, ...options } = {}) {
  const headers = { ...options.headers, ...(run && { "stepe-run": run }) };
  const signal = patient ? undefined : AbortSignal.timeout(PATIENCE);
  const answer = await fetch(address, { ...options, headers, signal, credentials: "same-origin" });
  const json = (answer.headers.get("content-type") || "").startsWith("application/json");
  const content = json ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok) throw new Refused(answer.status, content.error);
  return content;
}

export const get = (address) => ask(address);

// A patient one waits for as long as it takes: large data is not written in seconds.
export const post = (address, content, options = {}) =>
  ask(address, {
    ...options,
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(content),
  });

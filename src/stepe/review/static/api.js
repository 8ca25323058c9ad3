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

async function ask(address, options = {}) {
  const headers = { ...options.headers, ...(run && { "stepe-run": run }) };
  const answer = await fetch(address, { ...options, headers, signal: AbortSignal.timeout(PATIENCE), credentials: "same-origin" });
  const json = (answer.headers.get("content-type") || "").startsWith("application/json");
  const content = json ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok) throw new Refused(answer.status, content.error);
  return content;
}

export const get = (address) => ask(address);

export const post = (address, content) =>
  ask(address, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content) });

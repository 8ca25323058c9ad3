// Talking to the server.

const PATIENCE = 15_000;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(address, options = {}) {
  const answer = await fetch(address, { ...options, signal: AbortSignal.timeout(PATIENCE), credentials: "same-origin" });
  const json = (answer.headers.get("content-type") || "").startsWith("application/json");
  const content = json ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok) throw new Refused(answer.status, content.error);
  return content;
}

export const get = (address) => ask(address);

export const post = (address, content) =>
  ask(address, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(content) });

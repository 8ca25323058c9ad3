// Reviewing without a server: one key a verdict, decisions kept by the browser, exported as reviewed.csv.

function review() {
  const list = byId("cards");
  if (!list) return;
  const decisions = new Decisions(`stepe:${page.run}`);
  const gallery = new Gallery(list, decisions, decide);
  const bySuspect = new Map(page.suspects.map((suspect) => [suspect.row, suspect]));

  function decide(suspect, verdict, label = null) {
    if (verdict === "other") {
      gallery.activate(suspect);
      chooseClass(suspect, (number) => {
        gallery.activate(suspect);
        decide(suspect, "relabelled", number);
      });
      return;
    }
    // A class chosen by hand can be the one that was given, or the one that was suggested.
    if (label === suspect.given) verdict = "kept";
    else if (label !== null && label === suspect.suggested) verdict = "accepted";
    const labels = { accepted: suspect.suggested, kept: suspect.given, relabelled: label, unsure: null };
    if (verdict === "accepted" && !isClass(suspect.suggested)) return;
    decisions.add(suspect.row, verdict, labels[verdict]);
    changed(suspect);
    gallery.activate(suspect);
    gallery.move(1);
  }

  function undo() {
    const suspect = bySuspect.get(decisions.undo());
    if (suspect) gallery.goTo(suspect);
    changed(suspect);
  }

  function changed(suspect) {
    if (suspect) gallery.mark(suspect);
    const decided = decisions.current();
    const count = (verdict) => [...decided.values()].filter((decision) => decision.verdict === verdict).length;
    const [accepted, kept, relabelled, unsure] = ["accepted", "kept", "relabelled", "unsure"].map(count);
    const sure = accepted + kept + relabelled;
    byId("reviewed").value = decided.size;
    const all = thousands(page.suspects.length);
    byId("progress").textContent = decided.size
      ? `${thousands(decided.size)} of ${all} reviewed: ${accepted} accepted, ${relabelled} relabelled, ` +
        `${kept} kept, ${unsure} unsure` +
        (sure ? `; ${accepted + relabelled} of ${sure} labels were wrong` : "")
      : `None of ${all} reviewed yet`;
    byId("export").disabled = byId("undo").disabled = decided.size === 0;
    byId("not-kept").hidden = decisions.kept;
  }

  function exportDecisions() {
    const csv = reviewedCsv(page.suspects, decisions.current());
    const address = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    make("a", { href: address, download: "reviewed.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    decisions.exported = decisions.log.length;
    byId("exported").hidden = false;
  }

  const verdicts = { a: "accepted", k: "kept", o: "other", u: "unsure" };
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !gallery.active) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: gallery.columns, ArrowUp: -gallery.columns }[key];
    const likely = gallery.active.likely[Number(key) - 1];
    if (steps) gallery.move(steps);
    else if (key === "Home") gallery.move(-gallery.view.indexOf(gallery.active));
    else if (key === "End") gallery.move(gallery.view.length - 1 - gallery.view.indexOf(gallery.active));
    else if (verdicts[key]) decide(gallery.active, verdicts[key]);
    else if (key === "z") undo();
    else if (likely !== undefined) decide(gallery.active, "relabelled", likely);
    else return;
    event.preventDefault();
  });

  byId("undo").onclick = undo;
  byId("export").onclick = exportDecisions;
  byId("clear").onclick = () => gallery.filter("", "");
  byId("begin").onclick = () => {
    const decided = decisions.current();
    const next = gallery.view.find((suspect) => !decided.has(suspect.row)) ?? gallery.view[0];
    if (next) gallery.goTo(next);
  };
  window.addEventListener("storage", (event) => {
    if (event.key !== decisions.key) return;
    decisions.read();
    gallery.markAll();
    changed();
  });
  window.addEventListener("beforeunload", (event) => {
    if (!decisions.kept && decisions.log.length > decisions.exported) event.preventDefault();
  });

  for (const link of document.querySelectorAll("[data-given], [data-suggested]")) {
    link.addEventListener("click", () => gallery.filter(link.dataset.given ?? "", link.dataset.suggested ?? ""));
  }
  for (const link of document.querySelectorAll("a[data-row]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      byId("gallery").scrollIntoView();
      gallery.goTo(bySuspect.get(Number(link.dataset.row)));
    });
  }
  byId("reviewed").max = page.suspects.length;
  changed();
}

review();

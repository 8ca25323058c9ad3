// What a pointer, or the arrow keys, read off a chart. The charts themselves are drawn already.

for (const chart of document.querySelectorAll("[data-readings]")) {
  const { box, stops } = JSON.parse(chart.dataset.readings);
  const [left, top, right, bottom] = box;
  const drawing = chart.querySelector("[role=img]");
  const guide = make("span", { className: "guide", hidden: true });
  const told = make("output", { className: "tip", hidden: true });
  guide.style.top = `${100 * top}%`;
  guide.style.height = `${100 * (bottom - top)}%`;
  chart.append(guide, told);
  let place = stops.length - 1;

  const tell = (at) => {
    place = Math.min(stops.length - 1, Math.max(0, at));
    const [x, title, values] = stops[place];
    guide.style.left = `${100 * x}%`;
    const rows = values.map(([name, value]) =>
      make("span", {}, make("bdi", { textContent: name }), make("strong", { textContent: value })),
    );
    told.replaceChildren(make("em", { textContent: title }), ...rows);
    told.style.top = `${100 * top}%`;
    const half = (left + right) / 2;
    told.style.left = x <= half ? `calc(${100 * x}% + 0.5rem)` : "";
    told.style.right = x > half ? `calc(${100 * (1 - x)}% + 0.5rem)` : "";
    guide.hidden = told.hidden = false;
  };
  const hide = () => {
    guide.hidden = told.hidden = true;
  };

  if (!stops.length) continue;
  chart.addEventListener("pointermove", (event) => {
    const bounds = chart.getBoundingClientRect();
    const x = (event.clientX - bounds.left) / bounds.width;
    tell(stops.reduce((best, stop, i) => (Math.abs(stop[0] - x) < Math.abs(stops[best][0] - x) ? i : best), 0));
  });
  chart.addEventListener("pointerleave", hide);
  drawing.tabIndex = 0;
  drawing.addEventListener("focus", () => drawing.matches(":focus-visible") && tell(place));
  drawing.addEventListener("blur", hide);
  drawing.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: stops.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    tell(to);
  });
}

// A dialog to find one of many classes by typing; the likely ones come first.

function chooseClass(suspect, onChosen) {
  const dialog = byId("choose");
  const input = byId("choose-text");
  const list = byId("choose-list");
  const all = page.names.slice(0, page.classes).map((_, number) => number);
  const numbers = [...new Set([...suspect.likely, ...all])];
  let found = [];
  let place = 0;

  function show() {
    const word = input.value.toLowerCase();
    const rank = (number) => {
      const name = nameOf(number).toLowerCase();
      return name === word ? 0 : name.startsWith(word) ? 1 : 2;
    };
    found = numbers.filter((number) => nameOf(number).toLowerCase().includes(word));
    found = found.sort((a, b) => rank(a) - rank(b)).slice(0, 100);
    place = 0;
    list.replaceChildren(
      ...found.map((number, i) =>
        make("li", { id: `choose-${i}`, role: "option", onclick: () => close(number) }, named(number)),
      ),
    );
    mark();
  }

  function mark() {
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === place)));
    if (found.length) input.setAttribute("aria-activedescendant", `choose-${place}`);
    else input.removeAttribute("aria-activedescendant");
    list.children[place]?.scrollIntoView({ block: "nearest" });
  }

  function close(number) {
    dialog.close();
    if (number !== undefined) onChosen(number);
  }

  input.oninput = show;
  dialog.onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      place = (place + step + found.length) % found.length;
      mark();
    } else if (event.key === "Enter" && found.length) close(found[place]);
    else return;
    event.preventDefault();
  };
  input.value = "";
  show();
  dialog.showModal();
}

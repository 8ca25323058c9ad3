// Elements. Text only ever becomes text: nothing that comes from the data is parsed as markup.

export const find = (selector) => document.querySelector(selector);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Classes may differ by spaces at their ends alone.
export const visible = (text) => text.replace(/^\s+|\s+$/g, (spaces) => "␣".repeat(spaces.length)) || "(empty)";

// A name from the data: it may run from right to left, or be long.
export const name = (text) => make("bdi", { className: "class", title: text.length > 24 ? text : "" }, visible(text));

export const id = (detail) => make("bdi", { className: "id", title: detail.id }, detail.id);

export const key = (label) => make("kbd", {}, label);

"use strict";
// Nothing here makes markup out of strings: whatever comes from the data enters the page as text.

const page = JSON.parse(document.getElementById("data").textContent);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const thousands = (count) => count.toLocaleString("en");
const byId = (id) => document.getElementById(id);
const nameOf = (number) => (number < 0 ? "?" : page.names[number]);
const isClass = (number) => number >= 0 && number < page.classes;

// Classes may differ by spaces at their ends alone.
const visible = (text) => text.replace(/^\s+|\s+$/g, (spaces) => "␣".repeat(spaces.length));

// A name from the data, in its own direction; long ones are cut by the style sheet and told in full on hover.
function named(number, className = "") {
  return element("bdi", { className: `name ${className}`, textContent: visible(nameOf(number)), title: nameOf(number) });
}

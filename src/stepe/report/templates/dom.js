// What the page was made with, and how it is written down.

const page = JSON.parse(document.getElementById("data").textContent);

const thousands = (count) => count.toLocaleString("en");
const byId = (id) => document.getElementById(id);
const nameOf = (number) => (number < 0 ? "?" : page.names[number]);
const isClass = (number) => number >= 0 && number < page.classes;

// Classes may differ by spaces at their ends alone.
const visible = (text) => text.replace(/^\s+|\s+$/g, (spaces) => "␣".repeat(spaces.length));

// A name from the data, in its own direction; long ones are cut by the style sheet and told in full on hover.
function named(number, className = "") {
  return make("bdi", { className: `name ${className}`, textContent: visible(nameOf(number)), title: nameOf(number) });
}

// Elements that several parts of the page have.

import { make } from "./elements.js";

export const find = (selector) => document.querySelector(selector);

// Classes may differ by spaces at their ends alone.
export const visible = (text) => text.replace(/^\s+|\s+$/g, (spaces) => "␣".repeat(spaces.length)) || "(empty)";

// A name from the data: it may run from right to left, or be long.
export const name = (text) => make("bdi", { className: "class", title: text.length > 24 ? text : "" }, visible(text));

export const id = (detail) => make("bdi", { className: "id", title: detail.id }, detail.id);

export const key = (label) => make("kbd", {}, label);

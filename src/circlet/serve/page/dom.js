// Small helpers for making elements. Text always goes in as text nodes, never as HTML.

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** An element. `on…` are listeners, `dataset` and `aria…` attributes, and other keys properties of the element. */
export function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element, whose keys are attributes. */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function fill(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (name.includes("-") || name === "role" || name === "for" || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** An item of a list: a name, a bar of this share (0 to 1), and a number. */
export function barItem(name, share, number) {
  const fill = element("span", { className: "fill" });
  fill.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return element(
    "li",
    {},
    element("span", { className: "part", title: name }, name),
    element("span", { className: "bar", "aria-hidden": "true" }, fill),
    element("span", { className: "number" }, number),
  );
}

/** Say something to screen readers, without moving the focus. */
export function announce(message) {
  byId("announcer").textContent = message;
}

/** A listener for lists of buttons: the arrow keys move the focus among `items()`. */
export function arrowKeys(items, { previous, next }) {
  return (event) => {
    const step = event.key === next ? 1 : event.key === previous ? -1 : 0;
    const all = items();
    const at = all.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    all[(at + step + all.length) % all.length].focus();
  };
}

const whole = new Intl.NumberFormat("en-US");

/** 12345 as "12,345". */
export const count = (number) => whole.format(number);

/** 0.123 as "12.3 %", with a space that does not break. */
export const percent = (fraction) => `${(100 * fraction).toFixed(1)}\u00a0%`;

/** 42890839 as "42.9 MB". */
export function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  let value = number;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit && value < 99.95 ? value.toFixed(1) : Math.round(value)}\u00a0${units[unit]}`;
}

/** "1 label", "2 labels". */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

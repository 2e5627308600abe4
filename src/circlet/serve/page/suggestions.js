// Suggestions for the text while the user types. Only the answer to the newest request is shown.

import { ApiError } from "./api.js";
import { announce, byId, element, percent, plural } from "./dom.js";

const DEBOUNCE = 120;
const SETTLED = 900; // after so long a pause, screen readers hear the labels
const BUSY = 2; // seconds to wait if a busy service does not say how long

export class Suggestions {
  /** `page` has the shared parts: `api`, `model`, `settings`, `editor`, `feedback`. */
  constructor(page, { onPreview, onVersion, onShown }) {
    this.page = page;
    this.list = byId("suggestions");
    this.message = byId("suggestions-message");
    this.panel = byId("suggestions-panel");
    this.onPreview = onPreview; // (label or null): mark the words of this label
    this.onVersion = onVersion; // (version): an answer came from this version of the model
    this.onShown = onShown; // (text or null): suggestions for this text are on the page
    this.rows = new Map();
    this.answer = null;
    this.pinned = null;
    this.ticket = 0;
    this.controller = new AbortController();
    this.list.addEventListener("keydown", (event) => this.#keys(event));
    this.list.addEventListener("pointerleave", () => this.#preview(this.pinned));
    this.list.addEventListener("focusout", (event) => {
      if (!this.list.contains(event.relatedTarget)) this.#preview(this.pinned);
    });
  }

  /** The text, the model or a setting has changed. */
  refresh({ now = false } = {}) {
    this.ticket++;
    this.controller.abort();
    clearTimeout(this.timer);
    clearTimeout(this.settled);
    if (!this.page.model) return; // it is on its way, and then this is called again
    if (!this.page.editor.text.trim()) {
      this.#show(null);
      return;
    }
    this.timer = setTimeout(() => this.#ask(), now ? 0 : DEBOUNCE);
  }

  /** The sliders' values, as fields of a request. */
  options() {
    const { k, threshold, favorRare } = this.page.settings;
    return { k, threshold, favor_rare: favorRare };
  }

  /** Show again which labels have been accepted or rejected. */
  judge() {
    for (const [label, row] of this.rows) {
      const verdict = this.page.feedback.verdict(this.page.editor.text, label);
      row.classList.toggle("accepted", verdict === "accept");
      row.classList.toggle("rejected", verdict === "reject");
      for (const button of row.querySelectorAll("[data-verdict]"))
        button.setAttribute("aria-pressed", button.dataset.verdict === verdict);
    }
  }

  async #ask() {
    const ticket = ++this.ticket;
    const { api, model, editor } = this.page;
    const text = editor.text;
    this.controller = new AbortController();
    this.panel.setAttribute("aria-busy", "true");
    try {
      const answer = await api.suggest(model.id, { text, ...this.options() }, this.controller.signal);
      if (ticket !== this.ticket) return;
      this.onVersion(answer.version);
      this.#show(answer, text);
    } catch (error) {
      if (ticket === this.ticket) this.#fail(error);
    }
  }

  #show(answer, text = null) {
    this.answer = answer;
    this.panel.setAttribute("aria-busy", "false");
    const labels = answer?.results[0].labels ?? [];
    this.#render(labels);
    const { threshold } = this.page.settings;
    if (answer && !labels.length)
      this.#say(
        threshold > 0 ? `No label reaches ${percent(threshold)}. A lower threshold shows more.` : "No label fits this text.",
      );
    else this.message.hidden = true;
    byId("examples").hidden = answer !== null;
    this.onShown(text);
    if (answer)
      this.settled = setTimeout(() => {
        const named = labels.map(({ label, probability }) => `${label} ${Math.round(100 * probability)} percent`);
        announce(`${plural(labels.length, "label")}: ${named.join(", ")}`);
      }, SETTLED);
  }

  #fail(error) {
    this.panel.setAttribute("aria-busy", "false");
    if (error instanceof ApiError && (error.status === 503 || error.status === 429)) {
      const wait = error.retryAfter ?? BUSY;
      this.#say(`${error.message} Trying again in ${Math.ceil(wait)} s.`, "warning");
      this.timer = setTimeout(() => this.#ask(), 1000 * wait);
      return;
    }
    this.#render([]);
    byId("examples").hidden = true;
    this.onShown(null);
    this.#say(error instanceof ApiError ? error.message : `${error.message} Your text is kept; the labels will be back.`, "error");
  }

  #say(message, kind = "note") {
    this.message.hidden = false;
    this.message.className = `message ${kind}`;
    this.message.textContent = message;
    if (kind !== "note") announce(message);
  }

  /** Labels that stay keep their rows, so that focus and pointer stay where they are. */
  #render(labels) {
    const focused = document.activeElement;
    const before = this.rows;
    this.rows = new Map(labels.map(({ label }) => [label, before.get(label) ?? this.#row(label)]));
    labels.forEach(({ label, probability }, index) => {
      const row = this.rows.get(label);
      row.style.setProperty("--share", probability);
      row.querySelector(".percent").textContent = percent(probability);
      if (this.list.children[index] !== row) this.list.insertBefore(row, this.list.children[index] ?? null);
    });
    for (const [label, row] of before) if (!this.rows.has(label)) row.remove();
    if (focused !== document.activeElement && this.list.contains(focused)) focused.focus();
    if (this.pinned !== null && !this.rows.has(this.pinned)) this.#pin(null);
    else if (this.pinned !== null) this.#preview(this.pinned);
    this.judge();
  }

  #row(label) {
    const verdict = (kind, sign, word) =>
      element(
        "button",
        {
          type: "button",
          className: `verdict ${kind}`,
          dataset: { verdict: kind },
          title: `${word}: ${label}`,
          "aria-label": `${word}: ${label}`,
          "aria-pressed": "false",
          onclick: () => this.page.feedback.toggle(this.page.editor.text, label, kind),
        },
        element("span", { "aria-hidden": "true" }, sign),
      );
    const name = element(
      "button",
      {
        type: "button",
        className: "name",
        title: label,
        "aria-pressed": "false",
        onclick: () => this.#pin(this.pinned === label ? null : label),
      },
      label,
    );
    return element(
      "li",
      {
        className: "row",
        dataset: { label },
        onpointerenter: (event) => event.pointerType === "mouse" && this.#preview(label),
        onfocusin: () => this.#preview(label),
      },
      name,
      element("span", { className: "bar", "aria-hidden": "true" }, element("span", { className: "fill" })),
      element("span", { className: "percent number" }),
      element("span", { className: "verdicts" }, verdict("accept", "✓", "Right"), verdict("reject", "✗", "Wrong")),
    );
  }

  #pin(label) {
    this.pinned = label;
    for (const [each, row] of this.rows) row.querySelector(".name").setAttribute("aria-pressed", each === label);
    this.#preview(label);
  }

  #preview(label) {
    for (const [each, row] of this.rows) row.classList.toggle("shown", each === label);
    this.onPreview(label);
  }

  #keys(event) {
    if (event.key === "Escape") {
      this.#pin(null);
      this.page.editor.area.focus();
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest(".row");
    if (!step || !row) return;
    event.preventDefault();
    const column = [...row.querySelectorAll("button")].indexOf(event.target);
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.querySelectorAll("button")[column].focus();
  }
}

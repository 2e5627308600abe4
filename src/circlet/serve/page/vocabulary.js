// The model's labels: search by name, most common first, and the labels most similar to one.

import { barItem, byId, count, element, plural } from "./dom.js";

const DEBOUNCE = 120;
const LISTED = 50;
const NEAR = 7;

export class Vocabulary {
  constructor(page) {
    this.page = page;
    this.query = byId("vocabulary-query");
    this.list = byId("vocabulary-list");
    this.controller = new AbortController();
    this.query.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), DEBOUNCE);
    });
  }

  /** Labels with `query` in their names, as `{labels, total}`. */
  find(query, limit, signal) {
    const path = `/labels?query=${encodeURIComponent(query)}&limit=${limit}`;
    return this.page.api.model(this.page.model.id, path, { signal });
  }

  async load() {
    this.controller.abort();
    const { signal } = (this.controller = new AbortController());
    this.#near("Choose a label to see those that are near it.");
    try {
      const { labels, total } = await this.find(this.query.value.trim(), LISTED, signal);
      if (signal.aborted) return;
      byId("vocabulary-count").textContent =
        total > labels.length ? `${count(labels.length)} of ${count(total)}` : plural(total, "label");
      this.list.replaceChildren(...labels.map((each) => element("li", {}, this.#button(each))));
    } catch (error) {
      if (!signal.aborted) this.#near(error.message);
    }
  }

  #button({ label, documents }) {
    const button = element(
      "button",
      { type: "button", "aria-pressed": "false", onclick: () => this.#choose(label, button) },
      element("span", { className: "part" }, label),
      element("span", { className: "muted number" }, documents === null ? "new" : count(documents)),
    );
    return button;
  }

  async #choose(label, button) {
    this.list.querySelector("[aria-pressed=true]")?.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", "true");
    try {
      const path = `/near?label=${encodeURIComponent(label)}&k=${NEAR}`;
      const { near } = await this.page.api.model(this.page.model.id, path);
      if (button.getAttribute("aria-pressed") === "true") this.#near(`Near ${label}:`, near);
    } catch (error) {
      this.#near(error.message);
    }
  }

  #near(title, labels = []) {
    byId("near-title").textContent = title;
    byId("near").replaceChildren(...labels.map(({ label, similarity }) => barItem(label, similarity, similarity.toFixed(2))));
  }
}

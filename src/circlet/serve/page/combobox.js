// A text field that completes labels of the vocabulary and also takes new ones (the combobox pattern of WAI-ARIA).

import { element, plural } from "./dom.js";

const DEBOUNCE = 120;
const LIMIT = 8;

export class Combobox {
  /** `find(query, limit, signal)` gives `[{label, documents}]`; `choose(label)` gets the chosen or typed label. */
  constructor({ input, list, find, choose }) {
    Object.assign(this, { input, list, find, choose });
    this.options = [];
    this.active = -1;
    this.controller = new AbortController();
    input.addEventListener("input", () => this.#search());
    input.addEventListener("keydown", (event) => this.#keys(event));
    input.addEventListener("blur", () => this.close());
    list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the field keeps the focus
      const option = event.target.closest("[role=option]");
      if (option) this.#take(option.dataset.label);
    });
  }

  close() {
    clearTimeout(this.timer);
    this.controller.abort();
    this.#render([]);
  }

  /** Take the typed text as it is. */
  submit() {
    const label = this.input.value.trim();
    if (label) this.#take(label);
    this.input.focus();
  }

  #search() {
    clearTimeout(this.timer);
    this.controller.abort();
    const query = this.input.value.trim();
    if (!query) {
      this.#render([]);
      return;
    }
    this.timer = setTimeout(async () => {
      const { signal } = (this.controller = new AbortController());
      let found = [];
      try {
        found = await this.find(query, LIMIT, signal);
      } catch {
        if (signal.aborted) return; // otherwise the label can still be typed in full
      }
      if (signal.aborted) return;
      const known = found.some(({ label }) => label === query);
      this.#render(known ? found : [...found, { label: query, isNew: true }]);
    }, DEBOUNCE);
  }

  #render(options) {
    this.options = options;
    this.list.hidden = options.length === 0;
    this.input.setAttribute("aria-expanded", options.length > 0);
    this.list.replaceChildren(
      ...options.map(({ label, documents, isNew }, index) =>
        element(
          "li",
          { id: `${this.list.id}-${index}`, role: "option", "aria-selected": "false", dataset: { label } },
          element("span", { className: "option-label" }, label),
          element("span", { className: "muted number" }, isNew ? "new label" : documents === null ? "" : plural(documents, "document")),
        ),
      ),
    );
    this.#activate(-1);
  }

  #activate(index) {
    this.list.children[this.active]?.setAttribute("aria-selected", "false");
    this.active = index;
    const option = this.list.children[index];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  #keys(event) {
    const many = this.options.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && many) {
      event.preventDefault();
      this.#activate(this.active < 0 && step < 0 ? many - 1 : (this.active + step + many) % many);
    } else if (event.key === "Enter") {
      event.preventDefault();
      const label = this.options[this.active]?.label ?? this.input.value.trim();
      if (label) this.#take(label);
    } else if (event.key === "Escape") {
      this.close();
    }
  }

  #take(label) {
    this.input.value = "";
    this.close();
    this.choose(label);
  }
}

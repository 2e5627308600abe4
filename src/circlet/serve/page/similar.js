// The training documents most similar to the text, if the model has an index of them.

import { barItem, byId } from "./dom.js";

const SHOWN = 5;

export class Similar {
  constructor(page) {
    this.page = page;
    this.list = byId("similar");
    this.empty = byId("similar-empty");
    this.controller = new AbortController();
  }

  /** Ask about this text; null if there is none. */
  async refresh(text) {
    this.controller.abort();
    const { api, model } = this.page;
    byId("similar-section").hidden = !model?.has_index;
    if (!model?.has_index || text === null) {
      this.#show([]);
      return;
    }
    const { signal } = (this.controller = new AbortController());
    try {
      const body = { text, k: SHOWN };
      const { documents } = await api.model(model.id, "/similar", { method: "POST", body, signal });
      if (!signal.aborted) this.#show(documents);
    } catch (error) {
      if (!signal.aborted) this.#show([], error.message);
    }
  }

  #show(documents, message = "The nearest documents of the training set appear here.") {
    this.empty.textContent = message;
    this.empty.hidden = documents.length > 0;
    this.list.replaceChildren(
      ...documents.map(({ id, similarity }) => barItem(String(id), similarity, similarity.toFixed(2))),
    );
  }
}

// Requests to the service. Paths are relative to the page, so it also works behind a proxy that adds a prefix.

const TOKEN = "circlet-token";

/** The service answered with an error; `message` is its `detail`. */
export class ApiError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds, if the service said when to come back
  }
}

/** No answer: the service, or the network, is down. */
export class OfflineError extends Error {
  constructor() {
    super("The server does not answer.");
  }
}

export class Api {
  /** `askToken(wrong)` asks for a token and resolves when there is one; `onOffline()` is called if a connection fails. */
  constructor({ askToken, onOffline }) {
    this.askToken = askToken;
    this.onOffline = onOffline;
    this.asking = null;
  }

  get hasToken() {
    return sessionStorage.getItem(TOKEN) !== null;
  }

  health(signal) {
    return this.request("v1/health", { signal });
  }

  models() {
    return this.request("v1/models");
  }

  /** A request about one model: `path` is what follows its id. */
  model(id, path = "", options = {}) {
    return this.request(`v1/models/${encodeURIComponent(id)}${path}`, options);
  }

  suggest(id, body, signal) {
    return this.model(id, "/suggest", { method: "POST", body, signal });
  }

  async request(path, { method = "GET", body, signal } = {}) {
    for (;;) {
      const token = sessionStorage.getItem(TOKEN);
      const response = await this.#send(path, method, body, signal, token);
      if (response.status !== 401) return this.#read(response);
      await this.#newToken(token);
      signal?.throwIfAborted();
    }
  }

  async #send(path, method, body, signal, token) {
    const headers = { Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (token !== null) headers.Authorization = `Bearer ${token}`;
    const url = new URL(path, document.baseURI);
    try {
      const response = await fetch(url, { method, headers, signal, body: JSON.stringify(body), cache: "no-store" });
      if (response.status !== 502 && response.status !== 504) return response; // these come from a proxy
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
    this.onOffline();
    throw new OfflineError();
  }

  async #read(response) {
    const text = await response.text();
    let answer = null;
    try {
      answer = JSON.parse(text);
    } catch (error) {
      if (response.ok) throw new ApiError(response.status, `The server's answer is not JSON: ${error.message}`);
    }
    if (response.ok) return answer;
    const said = typeof answer?.detail === "string" ? answer.detail : `The server answered ${response.status}.`;
    const wait = Number.parseFloat(response.headers.get("Retry-After"));
    throw new ApiError(response.status, said, Number.isFinite(wait) ? wait : null);
  }

  /** Ask for a token once, however many requests wait for it. `used` is the token that was refused, or null. */
  async #newToken(used) {
    if (sessionStorage.getItem(TOKEN) !== used) return; // another request has got a new one meanwhile
    this.asking ??= this.askToken(used !== null).then((token) => {
      sessionStorage.setItem(TOKEN, token);
      this.asking = null;
    });
    await this.asking;
  }
}

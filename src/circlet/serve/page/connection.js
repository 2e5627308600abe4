// Checks whether the service answers: regularly while it does, with growing pauses while it does not.

import { ApiError } from "./api.js";

const CALM = 10_000;
const FIRST_RETRY = 1_000;
const LAST_RETRY = 15_000;

export class Connection {
  /** `onChange(up)`: the service went or came back; `onWait(seconds)`: until the next attempt; `onBeat()`: it is still there. */
  constructor({ onChange, onWait, onBeat }) {
    this.onChange = onChange;
    this.onWait = onWait;
    this.onBeat = onBeat;
    this.up = true;
    this.pause = FIRST_RETRY;
    this.timer = null;
    this.waiting = [];
  }

  start(api) {
    this.api = api;
    document.addEventListener("visibilitychange", () => document.hidden || this.check());
    window.addEventListener("online", () => this.check());
    this.#later(CALM);
  }

  /** A request failed: start looking for the service. */
  lost() {
    if (!this.up) return;
    this.up = false;
    this.pause = FIRST_RETRY;
    this.onChange(false);
    this.#retry();
  }

  /** Resolves when the service answers. */
  whenUp() {
    return this.up ? Promise.resolve() : new Promise((resolve) => this.waiting.push(resolve));
  }

  async check() {
    clearTimeout(this.timer);
    if (document.hidden) return; // resumes with `visibilitychange`
    const wasUp = this.up;
    try {
      await this.api.health(AbortSignal.timeout(5_000));
    } catch (error) {
      // An error that the service sends shows that it is there. Without an answer, the API has called `lost` already.
      if (!(error instanceof ApiError)) {
        if (!wasUp) this.#retry();
        return;
      }
    }
    if (!this.up) {
      this.up = true;
      this.onChange(true);
      for (const resolve of this.waiting.splice(0)) resolve();
    } else {
      this.onBeat();
    }
    this.#later(CALM);
  }

  #retry() {
    this.onWait(this.pause / 1000);
    this.#later(this.pause);
    this.pause = Math.min(2 * this.pause, LAST_RETRY);
  }

  #later(pause) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), pause);
  }
}

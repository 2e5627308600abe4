// Asks for the service's token.

import { byId } from "./dom.js";

/** Resolves with a token; `wrong` says that the one before was refused. The dialog stays until there is one. */
export function askToken(wrong) {
  const dialog = byId("token-dialog");
  const form = byId("token-form");
  const field = byId("token");
  byId("token-wrong").hidden = !wrong;
  field.value = "";
  const stay = (event) => event.preventDefault(); // nothing works without a token
  dialog.addEventListener("cancel", stay);
  dialog.showModal();
  return new Promise((resolve) => {
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        dialog.removeEventListener("cancel", stay);
        dialog.close();
        resolve(field.value);
      },
      { once: true },
    );
  });
}

// Light or dark: the system's choice, unless the user has chosen. A plain script, so that it runs before the first
// paint and no wrong color flashes up.
{
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
  const stored = localStorage.getItem("circlet-theme");
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => button.setAttribute("aria-pressed", current() === "dark");
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      localStorage.setItem("circlet-theme", root.dataset.theme);
      show();
    });
    system.addEventListener("change", show);
    show();
  });
}

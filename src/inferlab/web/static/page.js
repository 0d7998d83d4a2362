// In the head of every page, before anything is painted: a dark page must not flash white.

// Loads the page again, unless the user is already on the way to another: reloading would call them back.
(() => {
  let leaving = false;
  // A download looks like leaving, and is over soon.
  addEventListener("beforeunload", () => { leaving = true; setTimeout(() => { leaving = false; }, 3000); });
  window.inferlabReload = () => { if (!leaving) location.reload(); };
})();

// Only a choice that differs from what the browser prefers is remembered, so that choosing the same again is
// following it again.
(() => {
  const key = "inferlab-dark", query = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const store = (dark) => {
    try { dark === query.matches ? localStorage.removeItem(key) : localStorage.setItem(key, dark); } catch {}
  };
  const show = () => {
    const chosen = stored(), dark = chosen === null ? query.matches : chosen === "true";
    document.documentElement.classList.toggle("il-dark", dark);
    if (window.Quasar) setDark(dark);
  };
  window.inferlabTheme = {
    show, toggle: () => { store(!document.documentElement.classList.contains("il-dark")); show(); },
  };
  query.addEventListener("change", show);
  addEventListener("storage", (event) => { if (event.key === key) show(); });
  show();
})();

// The clipboard is only there on this machine and by https, and only while a click is handled; the old way works
// everywhere. The answer says whether it was done.
window.inferlabCopy = async (text) => {
  try { await navigator.clipboard.writeText(text); return true; } catch {}
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
};

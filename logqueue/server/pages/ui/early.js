// Runs before anything is drawn: the theme, so that the page never flashes in the other one, and
// what the first page needs, so that nothing waits for what imports it.
(function () {
  try {
    const theme = localStorage.getItem("logqueue.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: the theme of the system.
  }
  if (location.pathname !== "/ui/") return;
  const wanted = [
    "pages/overview", "parts/attention", "parts/marks", "parts/name_filter", "parts/sparkline", "pausing",
  ];
  for (const name of wanted) {
    const link = document.createElement("link");
    link.rel = "modulepreload";
    link.href = `/ui/${name}.js`;
    document.head.append(link);
  }
})();

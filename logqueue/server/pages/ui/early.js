// Runs before anything is drawn, so that the page never flashes in the other theme.
(function () {
  try {
    const theme = localStorage.getItem("logqueue.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: the theme of the system.
  }
})();

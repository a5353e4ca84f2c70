// The versions of these pages, where they are published beside each other: a list in the side bar. Nothing is fetched
// but the list, and from the same server.
(function () {
  "use strict";

  function show(versions, current, root) {
    const brand = document.querySelector(".sidebar-brand");
    if (!brand || versions.length < 2) {
      return;
    }
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Version");
    select.className = "versions";
    versions.forEach((version) => select.add(new Option(version, version, false, version === current)));
    select.addEventListener("change", () => {
      window.location.href = root + select.value + "/";
    });
    brand.after(select);
  }

  const parts = window.location.pathname.split("/");
  const at = parts.findIndex((part) => /^\d+\.\d+/.test(part));
  if (window.location.protocol.startsWith("http") && at > 0) {
    const root = parts.slice(0, at).join("/") + "/";
    fetch(root + "versions.json")
      .then((answer) => (answer.ok ? answer.json() : []))
      .then((versions) => show(versions, parts[at], root))
      .catch(() => {});
  }
})();

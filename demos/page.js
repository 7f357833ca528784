// Evidence takes the film to its moment; a film that cannot be played asks for a preview.
(() => {
  const film = () => document.getElementById("hl-video");

  const seek = (video, seconds) => {
    const go = () => {
      video.pause();
      video.currentTime = Math.min(seconds + 0.05, video.duration || seconds);
    };
    video.readyState >= 1 ? go() : video.addEventListener("loadedmetadata", go, { once: true });
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    video.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
  };

  const enlarge = (button) => {
    const image = button.querySelector("img");
    if (!image) return;
    const dialog = document.createElement("dialog");
    dialog.className = "hl-dialog";
    dialog.setAttribute("aria-label", button.getAttribute("aria-label"));
    const large = document.createElement("img");
    large.src = image.src;
    large.alt = button.getAttribute("aria-label");
    const close = document.createElement("button");
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.append(large, close);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-seek]");
    if (!button) return;
    const video = film();
    video ? seek(video, Number(button.dataset.seek)) : enlarge(button);
  });

  const needsPreview = (video) => {
    if (video.dataset.reported) return;
    video.dataset.reported = "yes";
    document.getElementById("hl-needs-preview")?.click();
  };
  // These events do not bubble, so they are caught on their way down.
  document.addEventListener("error", (event) => {
    if (event.target.id === "hl-video" && event.target.error?.code >= 3) needsPreview(event.target);
  }, true);
  document.addEventListener("loadedmetadata", (event) => {
    if (event.target.id === "hl-video" && !event.target.videoWidth) needsPreview(event.target);
  }, true);
})();

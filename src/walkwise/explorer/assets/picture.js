// The structure as a PNG to keep: what the page draws, with its name and its legend under it.
(function () {
  "use strict";

  const SCALE = 3;
  const PAD = 12;
  const FONT = "12.5px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

  // The corners of shapes that are not discs, within a box from -1 to 1.
  const around = (count, turn, inner) => Array.from({ length: count }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / count;
    const far = inner && i % 2 ? inner : 1;
    return [far * Math.cos(angle), far * Math.sin(angle)];
  });
  const CORNERS = {
    rectangle: [[-1, -1], [1, -1], [1, 1], [-1, 1]],
    diamond: [[0, -1], [1, 0], [0, 1], [-1, 0]],
    triangle: [[0, -1], [1, 1], [-1, 1]],
    hexagon: around(6, 0),
    star: around(10, -Math.PI / 2, 0.45),
    pentagon: around(5, -Math.PI / 2),
    octagon: around(8, Math.PI / 8),
  };

  function words(id) {
    return document.getElementById(id).textContent;
  }

  function colours(text) {
    return text.match(/rgba?\([^)]*\)/g) || [];
  }

  // The words in lines that are no wider than this.
  function wrapped(pen, text, width) {
    const lines = [""];
    text.split(" ").forEach((word) => {
      const longer = (lines[lines.length - 1] + " " + word).trim();
      if (lines[lines.length - 1] && pen.measureText(longer).width > width) {
        lines.push(word);
      } else {
        lines[lines.length - 1] = longer;
      }
    });
    return lines;
  }

  // The keys of rings that the picture shows, in rows that are no wider than this.
  function keyRows(pen, cy, width) {
    const used = { selected: ":selected", placed: ".placed", walked: ".walked" };
    const rows = [];
    let room = 0;
    document.querySelectorAll(".legend li").forEach((item) => {
      const mark = item.querySelector(".key");
      const name = Object.keys(used).find((one) => mark.classList.contains(one));
      if (cy.nodes(used[name]).length) {
        const size = 26 + pen.measureText(item.textContent).width + 16;
        if (!rows.length || size > room) {
          rows.push({ keys: [], width: 0 });
          room = width;
        }
        const row = rows[rows.length - 1];
        row.keys.push({ mark: mark, text: item.textContent, size: size });
        row.width += size;
        room -= size;
      }
    });
    return rows;
  }

  function ring(pen, x, y, radius, width, colour) {
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.lineWidth = width;
    pen.strokeStyle = colour;
    pen.stroke();
  }

  function drawKey(pen, key, x, y) {
    const style = window.getComputedStyle(key.mark);
    const border = parseFloat(style.borderTopWidth);
    ring(pen, x + 10, y, 7 - border / 2, border, style.borderTopColor);
    colours(style.boxShadow).forEach((colour) => ring(pen, x + 10, y, 8.5, 3, colour));
    pen.textAlign = "left";
    pen.fillText(key.text, x + 26, y);
  }

  function drawBar(pen, y, width) {
    const [low, high] = [words("legend-low"), words("legend-high")];
    const left = PAD + pen.measureText(low).width + 8;
    const right = width - PAD - pen.measureText(high).width - 8;
    const shades = colours(window.getComputedStyle(document.querySelector(".legend .scale")).backgroundImage);
    const fill = pen.createLinearGradient(left, 0, right, 0);
    shades.forEach((shade, i) => fill.addColorStop(i / (shades.length - 1), shade));
    pen.textAlign = "left";
    pen.fillText(low, PAD, y);
    pen.textAlign = "right";
    pen.fillText(high, width - PAD, y);
    pen.fillStyle = fill;
    pen.fillRect(left, y - 5, right - left, 10);
    pen.strokeStyle = "#8a8a8a";
    pen.lineWidth = 1;
    pen.strokeRect(left, y - 5, right - left, 10);
  }

  function ink(pen, font) {
    pen.font = font;
    pen.fillStyle = "#222222"; // the picture is white, whatever the page is
    pen.textBaseline = "middle";
    pen.textAlign = "center";
  }

  function composed(image, cy) {
    const canvas = document.createElement("canvas");
    const pen = canvas.getContext("2d");
    const [width, height] = [image.width / SCALE, image.height / SCALE];
    ink(pen, FONT);
    const select = document.getElementById("graph-choice");
    const title = select.selectedOptions.length ? select.selectedOptions[0].textContent : "";
    const meaning = wrapped(pen, words("legend-words"), width - 2 * PAD);
    const rows = keyRows(pen, cy, width - 2 * PAD);
    canvas.width = image.width;
    canvas.height = image.height + SCALE * (22 + 22 + 18 * meaning.length + 24 * rows.length + PAD);
    pen.fillStyle = "#ffffff";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0);
    pen.scale(SCALE, SCALE);
    ink(pen, "600 " + FONT);
    pen.fillText(title, width / 2, height + 11, width - 2 * PAD);
    ink(pen, FONT);
    drawBar(pen, height + 33, width);
    ink(pen, FONT);
    meaning.forEach((line, i) => pen.fillText(line, width / 2, height + 53 + 18 * i));
    rows.forEach((row, i) => {
      let x = (width - row.width + 16) / 2;
      row.keys.forEach((key) => {
        drawKey(pen, key, x, height + 58 + 18 * meaning.length + 24 * i);
        x += key.size;
      });
    });
    return canvas;
  }

  function keep(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // The structure as SVG: lines, nodes and letters as they stand on the page, whole, at zoom 1.
  function svg(cy) {
    const box = cy.elements().boundingBox();
    const [x0, y0, width, height] = [box.x1 - PAD, box.y1 - PAD, box.w + 2 * PAD, box.h + 2 * PAD];
    const text = (words) => words.replace(/&/g, "&amp;").replace(/</g, "&lt;");
    const round = (value) => value.toFixed(2);
    const lines = cy.edges().map((edge) => {
      const [a, b] = [edge.source().position(), edge.target().position()];
      const [dx, dy] = edge.data("end").split(" ").map(parseFloat);
      const dash = edge.hasClass("dashed") ? ' stroke-dasharray="5 4"' : "";
      return `<line x1="${round(a.x + dx)}" y1="${round(a.y + dy)}" x2="${round(b.x + dx)}" y2="${round(b.y + dy)}" ` +
        `stroke="${edge.style("line-color")}" stroke-width="${parseFloat(edge.style("width"))}"${dash}/>`;
    });
    const discs = cy.nodes().map((node) => {
      const at = node.position();
      const radius = node.data("side") / 2;
      const border = parseFloat(node.style("border-width"));
      const size = parseFloat(node.style("font-size"));
      const below = node.hasClass("word") || node.hasClass("typed") ? radius + size : 0.35 * size;
      const corners = CORNERS[node.data("shape")];
      const outline = corners
        ? `<polygon points="${corners.map(([x, y]) => round(at.x + radius * x) + "," + round(at.y + radius * y)).join(" ")}" `
        : `<circle cx="${round(at.x)}" cy="${round(at.y)}" r="${round(radius)}" `;
      return outline + `fill="${node.data("colour")}" ` +
        `stroke="${node.style("border-color")}" stroke-width="${border}"/>` +
        `<text x="${round(at.x)}" y="${round(at.y + below)}" font-size="${round(size)}" text-anchor="middle" ` +
        `fill="${node.style("color")}">${text(node.style("label"))}</text>`;
    });
    const title = [shownTitle(), words("legend-words")].filter(Boolean).map(text).join("; ");
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${round(x0)} ${round(y0)} ${round(width)} ${round(height)}" ` +
      `width="${round(width)}" height="${round(height)}" font-family="sans-serif"><title>${title}</title>` +
      `<rect x="${round(x0)}" y="${round(y0)}" width="${round(width)}" height="${round(height)}" fill="#ffffff"/>` +
      lines.join("") + discs.join("") + "</svg>\n";
  }

  function shownTitle() {
    const select = document.getElementById("graph-choice");
    return select.selectedOptions.length ? select.selectedOptions[0].textContent : "";
  }

  // A picture that stays beside the structure while another graph or class is looked at.
  function pin(canvas) {
    const figure = document.createElement("figure");
    const image = document.createElement("img");
    const button = document.createElement("button");
    image.src = canvas.toDataURL("image/png");
    image.alt = shownTitle() + ": " + words("prediction") + "; " + words("legend-words");
    button.type = "button";
    button.textContent = "×";
    button.setAttribute("aria-label", "Remove the pinned picture of " + shownTitle());
    button.addEventListener("click", () => figure.remove());
    const caption = document.createElement("figcaption");
    caption.textContent = shownTitle() + ": " + words("prediction");
    figure.append(button, image, caption);
    document.getElementById("pinned").append(figure);
  }

  window.dash_clientside.walkwise.picture = function (png, vectors, pinned, name) {
    const cy = document.getElementById("structure")._cyreg.cy;
    const by = window.dash_clientside.callback_context.triggered_id;
    if (by === "export-svg") {
      keep(new Blob([svg(cy)], { type: "image/svg+xml" }), name + ".svg");
      return window.dash_clientside.no_update;
    }
    const image = new Image();
    image.onload = () => {
      const canvas = composed(image, cy);
      by === "pin" ? pin(canvas) : canvas.toBlob((blob) => keep(blob, name + ".png"), "image/png");
    };
    image.src = cy.png({ output: "base64uri", bg: "#ffffff", full: false, scale: SCALE });
    return window.dash_clientside.no_update;
  };
})();

// What the page does without asking the server: the structure's dress, the greedy order's clock, walks pointed at.
(function () {
  "use strict";

  const clientside = (window.dash_clientside = window.dash_clientside || {});
  const wanted = { graph: 0, selection: [], placed: [], numbered: true, heated: false };
  let target = null;
  let restored = false;
  let wished = false;
  let playedGraph = null;
  let tab = null;
  let usualOrder = null;

  // What this tab has asked for need not be computed on when nobody looks any more.
  window.addEventListener("pagehide", () => tab && navigator.sendBeacon("closed", tab));

  function structure() {
    const box = document.getElementById("structure");
    return box && box._cyreg ? box._cyreg.cy : null;
  }

  function same(a, b) {
    return a.length === b.length && a.every((value, i) => value === b[i]);
  }

  function ranges(ids) {
    const runs = [];
    ids.forEach((id) => {
      const last = runs[runs.length - 1];
      last && id === last[last.length - 1] + 1 ? last.push(id) : runs.push([id]);
    });
    return runs.map((run) => (run.length > 2 ? run[0] + "-" + run[run.length - 1] : run.join(", "))).join(", ");
  }

  function ofGraph(cy) {
    return cy.nodes().filter((node) => node.data("graph") === wanted.graph);
  }

  // Selection, greedy order and labels as they should be; again when elements come later than the wish.
  function dress() {
    const cy = structure();
    if (!cy) {
      window.setTimeout(dress, 50);
      return;
    }
    if (!cy.scratch("walkwise")) {
      cy.scratch("walkwise", true);
      let waiting = null;
      cy.on("add", () => {
        window.clearTimeout(waiting);
        waiting = window.setTimeout(dress, 20);
      });
      cy.on("resize", () => cy.fit(undefined, 26));
    }
    const newest = wanted.placed[wanted.placed.length - 1];
    cy.batch(() => {
      ofGraph(cy).forEach((node) => {
        const id = node.data("node");
        const chosen = wanted.selection.includes(id);
        if (chosen !== node.selected()) {
          chosen ? node.select() : node.unselect();
        }
        node.toggleClass("placed", wanted.placed.includes(id));
        node.toggleClass("newest", id === newest);
        node.toggleClass("numbered", wanted.numbered);
      });
      cy.edges().forEach((edge) => edge.toggleClass("heated", wanted.heated));
    });
  }

  function pointAt(button) {
    const cy = structure();
    const words = document.getElementById("pointed");
    if (!cy) {
      return;
    }
    const nodes = button ? button.dataset.nodes.split(",").map(Number) : [];
    const pairs = new Set();
    for (let i = 1; i < nodes.length; i += 1) {
      pairs.add(Math.min(nodes[i - 1], nodes[i]) + "-" + Math.max(nodes[i - 1], nodes[i]));
    }
    cy.batch(() => {
      ofGraph(cy).forEach((node) => node.toggleClass("walked", nodes.includes(node.data("node"))));
      cy.edges().forEach((edge) => {
        const ends = edge.data("pair").split("-").map(Number);
        edge.toggleClass("walked", pairs.has(Math.min(...ends) + "-" + Math.max(...ends)));
      });
    });
    words.textContent = button ? "Walk " + button.innerText.replace(/\s+/g, " ") : "";
  }

  function walkOf(event) {
    return event.target.closest ? event.target.closest("button.walk") : null;
  }

  ["mouseover", "focusin"].forEach((kind) =>
    document.addEventListener(kind, (event) => walkOf(event) && pointAt(walkOf(event)))
  );
  ["mouseout", "focusout"].forEach((kind) =>
    document.addEventListener(kind, (event) => {
      const next = event.relatedTarget && event.relatedTarget.closest && event.relatedTarget.closest("button.walk");
      if (walkOf(event) && !next) {
        const focused = document.activeElement && document.activeElement.closest("button.walk");
        pointAt(kind === "mouseout" ? focused : null);
      }
    })
  );
  document.addEventListener("click", (event) => {
    const walk = walkOf(event);
    if (walk) {
      const nodes = [...new Set(walk.dataset.nodes.split(",").map(Number))].sort((a, b) => a - b);
      clientside.set_props("selection", { data: nodes });
    }
  });

  // A row of the table opens its graph, wherever it is clicked.
  document.addEventListener("click", (event) => {
    const row = event.target.closest ? event.target.closest("tr[data-row]") : null;
    if (row && !event.target.closest("button")) {
      row.querySelector("button").click();
    }
  });

  document.addEventListener("change", (event) => {
    const store = event.target.dataset ? event.target.dataset.store : null;
    if (store) {
      const text = event.target.value;
      const value = /^\d+$/.test(text) ? Number(text) : text === "" ? null : text;
      const field = event.target.dataset.field;
      clientside.set_props(store, { data: field ? { ...fields(), [field]: value } : value });
    }
  });

  // What is asked of the graph, as a dictionary: the class, the one it is set against, the rule, the node.
  function fields() {
    return target !== null && typeof target === "object" ? target : { column: target };
  }

  // What the address holds after #: a tab that is opened with it begins there.
  function written() {
    const found = new URLSearchParams(window.location.hash.slice(1));
    return found.has("graph") ? found : null;
  }

  function number(text) {
    return text === null || text === "" ? null : Number(text);
  }

  function restore(found) {
    const graph = Number(found.get("graph")) || 0;
    const asked = {
      column: number(found.get("class")), against: number(found.get("against")), rule: found.get("rule"),
      index: number(found.get("node")),
    };
    const selection = (found.get("nodes") || "").split(",").filter(Boolean).map(Number);
    const alpha = Math.min(1, Math.max(0, Number(found.get("alpha")) || 0));
    let own = {};
    try {
      own = JSON.parse(found.get("groups") || "{}");
    } catch (error) {
      own = {};
    }
    clientside.set_props("own", { data: own });
    clientside.set_props("wish", { data: { graph: graph, target: asked, selection: selection } });
    clientside.set_props("alpha", { data: alpha });
    clientside.set_props("alpha-range", { value: alpha });
    clientside.set_props("alpha-typed", { value: String(alpha) });
    if (found.get("order")) {
      clientside.set_props("order-alpha", { value: Math.min(1, Math.max(0, Number(found.get("order")) || 0)) });
    }
    clientside.set_props("by", { data: found.get("by") === "magnitude" ? "magnitude" : "relevance" });
    if (found.get("formula")) {
      clientside.set_props("formula", { value: found.get("formula") });
      clientside.set_props("asked", { data: [found.get("formula"), 1] });
    }
    clientside.set_props("graph", { data: graph });
  }

  clientside.walkwise = {
    // The address says what is shown, so that it can be kept, shared and opened again.
    remember(graph, shown, selection, alpha, by, asked, own, ordered) {
      if (!restored) {
        restored = true;
        tab = String(Math.random()).slice(2);
        usualOrder = ordered;
        clientside.set_props("tab", { data: tab });
        const found = written();
        if (found) {
          wished = true;
          restore(found);
          return clientside.no_update;
        }
      } else if (wished && shown !== null) {
        wished = false;
        clientside.set_props("wish", { data: null });
      }
      target = shown;
      const now = fields();
      const pairs = {
        graph: graph, class: now.column, against: now.against, rule: now.rule, node: now.index,
        nodes: (selection || []).join(","), alpha: alpha || "",
        order: ordered === usualOrder || ordered === null || ordered === undefined ? "" : ordered, by: by === "magnitude" ? by : "",
        formula: asked && asked[0] ? asked[0] : "", groups: Object.keys(own || {}).length ? JSON.stringify(own) : "",
      };
      const kept = Object.entries(pairs).filter(([, value]) => value !== null && value !== undefined && value !== "");
      window.history.replaceState(null, "", "#" + new URLSearchParams(kept).toString());
      return clientside.no_update;
    },

    pick(data, selection, graph) {
      const picked = (data || []).filter((d) => d.graph === graph).map((d) => d.node);
      picked.sort((a, b) => a - b);
      // What the structure was told to select comes back as an event, perhaps after something else was chosen.
      const echo = same(picked, [...wanted.selection].sort((a, b) => a - b));
      return echo || same(picked, selection) ? clientside.no_update : picked;
    },

    // Node ids as one would type them: 0-2, 7, or user 0-2, item 7. In the browser, so that no late answer overwrites
    // what is being typed.
    nodes(selection, types) {
      const chosen = [...(selection || [])].sort((a, b) => a - b);
      if (!types || !types.length) {
        return ranges(chosen);
      }
      return types.map(([name, first, count]) => {
        const mine = chosen.filter((node) => node >= first && node < first + count).map((node) => node - first);
        return mine.length ? name + " " + ranges(mine) : "";
      }).filter(Boolean).join(", ");
    },

    dress(elements, selection, step, order, ids, edges, graph) {
      wanted.graph = graph;
      wanted.selection = selection || [];
      wanted.placed = order && order.graph === graph ? order.order.slice(0, step) : [];
      wanted.numbered = (ids || 0) % 2 === 0;
      wanted.heated = (edges || 0) % 2 === 1;
      document.getElementById("ids").setAttribute("aria-pressed", String(wanted.numbered));
      document.getElementById("edges").setAttribute("aria-pressed", String(wanted.heated));
      dress();
      return clientside.no_update;
    },

    play(play, forward, back, rewind, ticks, order, step, paused) {
      // A click may come in together with the order it waited for: both count, the order first.
      const came = clientside.callback_context.triggered.filter((t) => t.value != null).map((t) => t.prop_id.split(".")[0]);
      const clicked = ["play", "forward", "back", "rewind"].find((name) => came.includes(name));
      const last = order ? order.order.length : 0;
      let next = step;
      let stopped = paused;
      if (!order || came.includes("order")) {
        const fresh = !order || order.graph !== playedGraph;
        playedGraph = order ? order.graph : null;
        next = fresh ? 0 : Math.min(step, last);
        stopped = fresh || paused;
        if (!order || !clicked) {
          return [next, stopped, stopped ? "Play" : "Pause"];
        }
      }
      const by = clicked || clientside.callback_context.triggered_id;
      if (by === "play") {
        stopped = !stopped;
        next = !stopped && next >= last ? 0 : next;
      } else if (by === "clock") {
        next = stopped ? next : next + 1;
      } else if (clicked) {
        stopped = true;
        next = by === "rewind" ? 0 : next + (by === "forward" ? 1 : -1);
      }
      next = Math.max(0, Math.min(last, next));
      stopped = stopped || (by === "clock" && last > 0 && next >= last);
      return [next, stopped, stopped ? "Play" : "Pause"];
    },

    curve(step, order) {
      if (!order) {
        return [clientside.no_update, clientside.no_update];
      }
      const [line, mark] = order.figure.data;
      const curve = order.values.length > 0;  // without one where the model cannot be run on parts of the graph
      const at = step > 0 && curve ? { x: [step], y: [order.values[step - 1]] } : { x: [], y: [] };
      const figure = { data: [line, { ...mark, ...at }], layout: order.figure.layout };
      const words =
        step > 0
          ? "Step " + step + " of " + order.order.length + ": + " + order.titles[step - 1] +
            (curve ? ", f = " + order.values[step - 1].toPrecision(3).replace("-", "\u2212") : "")
          : order.problem
            ? order.order.length + " nodes to place; no curve. " + order.problem
          : order.order.length
            ? order.order.length + " nodes to place, area (AUAC) " + order.area
            : "A large graph: Play finds the order first, which can take minutes.";
      return [figure, words];
    },

    // A problem of another graph than the one chosen came late and is dropped; choosing a graph clears the line.
    said(problem, graph) {
      const came = clientside.callback_context.triggered.map((t) => t.prop_id.split(".")[0]);
      if (came.includes("problem") && problem && (problem.graph == null || problem.graph === graph)) {
        return problem.words;
      }
      return came.includes("graph") ? "" : clientside.no_update;
    },

    // What is wanted of the table: here, not on the server, so that clicks that follow each other quickly all count.
    list(sorts, shows, text, smarts, back, forward, pattern, before) {
      const listed = { ...before };
      let chosen = clientside.no_update;
      let typed = clientside.no_update;
      const sortByPattern = (picked) => {
        if (picked !== null) {
          Object.assign(listed, { sort: "pattern", falling: true });
        } else if (listed.sort === "pattern") {
          Object.assign(listed, { sort: "graph", falling: false });
        }
      };
      const came = clientside.callback_context.triggered.map((t) => t.prop_id.slice(0, t.prop_id.lastIndexOf(".")));
      came.forEach((by) => {
        const turned = { "list-back": -1, "list-forward": 1 }[by];
        listed.page = turned ? Math.max(0, listed.page + turned) : 0;
        if (by === "list-text") {
          listed.text = text || "";
        } else if (by === "list-smarts" && (smarts || typeof pattern !== "number")) {
          chosen = (smarts || "").trim() || null;
          sortByPattern(chosen);
        } else if (by === "pattern-listed") {
          typed = typeof pattern === "string" ? clientside.no_update : "";
          sortByPattern(pattern);
        } else if (by.startsWith("{")) {
          const asked = JSON.parse(by);
          if (asked.kind === "show") {
            listed.kind = asked.which;
          } else {
            listed.falling = listed.sort === asked.column && !listed.falling;
            listed.sort = asked.column;
          }
        }
      });
      return [listed, chosen, typed];
    },

    // The row of the graph that is shown, and the structure in sight once a row was opened.
    opened(rows, place, pattern) {
      document.getElementById("pattern-listed-choice").value = typeof pattern === "number" ? String(pattern) : "";
      const came = clientside.callback_context.triggered.map((t) => t.prop_id.split(".")[0]);
      window.setTimeout(() => {
        document.querySelectorAll("tr[data-row]").forEach((row) =>
          row.classList.toggle("current", row.dataset.row === String(place))
        );
        const panel = document.getElementById("structure-panel");
        if (came.includes("place") && panel.getBoundingClientRect().top > 0.6 * window.innerHeight) {
          panel.scrollIntoView({ block: "start" });
        }
      }, 30);
      return clientside.no_update;
    },

    same(value) {
      return value;
    },

    // The drop-downs show what their stores hold; options may come a moment later.
    choices(graph, shown, speed, by) {
      target = shown;
      const values = { graph: graph, target: fields(), speed: speed, by: by };
      const write = () =>
        document.querySelectorAll("select[data-store]").forEach((select) => {
          if (!(select.dataset.store in values)) {
            return;
          }
          const held = values[select.dataset.store];
          const value = select.dataset.field ? held[select.dataset.field] : held;
          select.value = value === null || value === undefined ? "" : String(value);
        });
      write();
      window.setTimeout(write, 60);
      return clientside.no_update;
    },

    // In a list with a count, so that the same formula can be asked again.
    ask(clicks, submits, formula) {
      return [formula || "", (clicks || 0) + (submits || 0)];
    },
  };
})();

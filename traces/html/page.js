// Draws the charts of the report with plotly, in the colours of the theme; always light on paper.
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const page = read("charts");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chooser = document.getElementById("variant");
  const purchase = document.querySelector(".purchase") !== null;
  let printing = false;
  // Colours that a reader with any colour vision tells apart: Okabe and Ito, lighter on dark paper.
  const themes = {
    light: {
      paper: "#ffffff", ink: "#1b1f24", grid: "#e1e5ea", mark: "#a3123a", pattern: "#ffffff",
      device: "#0072b2", host: "#e69f00", storage: "#009e73", first_seen: "#c3c9d0",
      lost0: "#b0412b", lost1: "#8e5a8f", lost2: "#6b5b4b",
      queue: "#c3c9d0", load: "#e69f00", compute: "#0072b2",
      way0: "#0072b2", way1: "#d55e00", way2: "#009e73", way3: "#8e5a8f",
      line0: "#0072b2", line1: "#d55e00", line2: "#009e73", line3: "#8e5a8f", line4: "#9a6a00",
      line5: "#1b1f24", line6: "#2c9fd6",
    },
    dark: {
      paper: "#14181d", ink: "#e8ebee", grid: "#303841", mark: "#ff8fab", pattern: "#14181d",
      device: "#56b4e9", host: "#f0b429", storage: "#2dc79a", first_seen: "#68727d",
      lost0: "#f07f5f", lost1: "#cf9bd0", lost2: "#b9a58f",
      queue: "#68727d", load: "#f0b429", compute: "#56b4e9",
      way0: "#56b4e9", way1: "#f58a4b", way2: "#2dc79a", way3: "#cf9bd0",
      line0: "#56b4e9", line1: "#f58a4b", line2: "#2dc79a", line3: "#cf9bd0", line4: "#f0b429",
      line5: "#e8ebee", line6: "#9fd3f5",
    },
  };

  const themed = (value, key, colours) => {
    if (Array.isArray(value)) return value.map((one) => themed(one, key, colours));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([name, one]) => [name, themed(one, name, colours)]));
    }
    const named = typeof value === "string" && value[0] === "@" && /colors?$/.test(key);
    return named ? colours[value.slice(1)] : value;
  };

  const shared = (layout, colours, narrow) => {
    const axis = { gridcolor: colours.grid, linecolor: colours.grid, tickcolor: colours.grid };
    return {
      paper_bgcolor: colours.paper,
      plot_bgcolor: colours.paper,
      font: { color: colours.ink, size: narrow ? 11 : 13, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: colours.paper, font: { color: colours.ink } },
      margin: narrow ? { l: 8, r: 8, t: 8, b: 8 } : { l: 16, r: 16, t: 12, b: 12 },
      legend: {
        orientation: "h", x: 0, y: 1.02, yanchor: "bottom", xanchor: "left", traceorder: "normal",
      },
      ...layout,
      xaxis: { ...axis, ...layout.xaxis },
      yaxis: { ...axis, ...layout.yaxis },
    };
  };

  const draw = (id, figure) => {
    const place = document.getElementById(id);
    const half = printing && purchase;  // two charts stand side by side
    const width = half ? 325 : printing ? 680 : place.clientWidth;
    const narrow = width < 520;
    const colours = themes[dark.matches && !printing ? "dark" : "light"];
    const layout = shared(themed(figure.layout, "", colours), colours, narrow);
    layout.width = printing ? width : undefined;
    layout.autosize = !printing;
    if (half) {
      layout.height = 185;
      layout.font.size = 9;
    } else if (narrow) layout.height += 24 * figure.data.length;
    return Plotly.react(place, themed(figure.data, "", colours), layout, {
      responsive: true, scrollZoom: false, displayModeBar: false,
    });
  };

  const drawAll = () => {
    const number = chooser ? Number(chooser.value) : page.first;
    const drawn = Object.entries(page.charts).map(([id, figure]) => draw(id, figure));
    for (const [id, figures] of Object.entries(page.choices)) drawn.push(draw(id, figures[number]));
    return Promise.all(drawn);
  };

  const print = (now) => {
    printing = now;
    drawAll();
  };

  // Plotly is in the page as compressed text; the page's policy allows it by its hash.
  const unpack = async () => {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = Uint8Array.from(packed, (one) => one.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(plain).text();
    document.head.append(script);
  };

  const begin = async () => {
    await unpack();
    dark.addEventListener("change", drawAll);
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    if (chooser) chooser.addEventListener("change", drawAll);
    await drawAll();
    document.documentElement.dataset.drawn = "all";
  };
  begin();
})();

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
      line0: "#0072b2", line1: "#d55e00", line2: "#009e73", line3: "#8e5a8f", line4: "#9a6a00",
      line5: "#1b1f24", line6: "#2c9fd6",
    },
    dark: {
      paper: "#14181d", ink: "#e8ebee", grid: "#303841", mark: "#ff8fab", pattern: "#14181d",
      device: "#56b4e9", host: "#f0b429", storage: "#2dc79a", first_seen: "#68727d",
      lost0: "#f07f5f", lost1: "#cf9bd0", lost2: "#b9a58f",
      queue: "#68727d", load: "#f0b429", compute: "#56b4e9",
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

  const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const cividis = ["#00224e", "#3a4a6b", "#7d7c78", "#bcae6c", "#fee838"];  // from dark to light
  const pattern = (shape) => ({
    shape, fillmode: "overlay", fgcolor: "@pattern", fgopacity: 0.7, size: 7, solidity: 0.15,
  });
  const bar = (one) => ({
    type: "bar", name: one.name,
    marker: { color: `@${one.colour}`, line: { width: 0 }, pattern: pattern(one.pattern || "") },
  });
  const line = (one, number) => ({
    type: "scatter", mode: one.x && one.x.length <= 40 ? "lines+markers" : "lines",
    name: one.name, x: one.x, y: one.y, marker: { size: 6, symbol: number },
    line: {
      color: `@line${number % 7}`, width: 2.5,
      dash: one.dash || dashes[Math.floor(number / 7) % dashes.length],
    },
  });
  const tick = (value) => {
    const unit = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([one]) => value >= one);
    return unit ? `${+(value / unit[0]).toPrecision(3)} ${unit[1]}` : `${+value.toPrecision(3)}`;
  };
  // An axis with ticks at 1, 2 and 5 times powers of ten, or at powers alone where it is long.
  const logarithmic = (values) => {
    const known = values.filter((one) => one > 0).map(Math.log10);
    if (!known.length) return { type: "log" };
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const room = Math.max(0.03 * (high - low), 0.02);
    const steps = high - low > 4 ? [1] : high - low > 2 ? [1, 3] : [1, 2, 5];
    const tickvals = [];
    for (let power = Math.floor(low) - 1; power <= Math.ceil(high); power += 1) {
      for (const step of steps) {
        const at = power + Math.log10(step);
        if (at >= low - room && at <= high + room) tickvals.push(step * 10 ** power);
      }
    }
    return { type: "log", range: [low - room, high + room], tickvals, ticktext: tickvals.map(tick) };
  };

  // Each kind of chart as a plotly figure.
  const kinds = {
    lines: (chart) => {
      const data = chart.lines.map(line);
      const most = Math.min(1.02, 1.1 * Math.max(...data.flatMap((one) => one.y))) || 1;
      for (const one of data) one.hovertemplate = `%{x:,.4g} ${chart.unit}: %{y:.1%}`;
      if (chart.mark) {
        data.push({
          type: "scatter", mode: "lines", name: chart.mark[0], hovertemplate: "%{x:,.4g}",
          x: [chart.mark[1], chart.mark[1]], y: [0, most],
          line: { color: "@mark", width: 2, dash: "longdash" },
        });
      }
      return { data, layout: {
        height: 340 + 7 * data.length,
        xaxis: logarithmic(data.flatMap((one) => one.x)),
        yaxis: { tickformat: ".0%", range: [0, most] },
      } };
    },
    steps: (chart) => ({
      data: chart.steps.map((one, number) => {
        const made = { ...line(one, number), mode: "lines", x0: 0, dx: chart.bucket };
        made.line = { ...made.line, shape: "hv", dash: dashes[number] };
        return { ...made, hovertemplate: "%{y:,.4g} GB/s" };
      }),
      layout: { hovermode: "x unified", yaxis: { rangemode: "tozero" } },
    }),
    stacked: (chart) => ({
      data: chart.stacked.map((one) => ({
        ...bar(one), x0: chart.bucket / 2, dx: chart.bucket, width: chart.bucket, y: one.y,
        hovertemplate: "%{y:,} tokens",
      })),
      layout: { barmode: "stack", bargap: 0, hovermode: "x unified" },
    }),
    beside: (chart) => {
      const places = chart.labels.map((_, place) => place);
      return {
        data: chart.beside.map((one) => ({
          ...bar(one), orientation: "h", y: places, x: one.x, text: one.text, textposition: "none",
          hovertemplate: chart.rate ? "%{x:.1%}, %{text}" : "%{text}",
        })),
        layout: {
          height: 150 + 34 * Math.min(places.length, 40), barmode: "stack",
          xaxis: chart.rate ? { tickformat: ".0%", range: [0, 1] } : {},
          yaxis: {
            tickvals: places, ticktext: chart.labels, autorange: "reversed", showgrid: false,
          },
        },
      };
    },
    areas: (chart) => {
      const known = chart.areas.every((one) => one.hit !== null);
      const steps = known ? cividis.length : 1;
      const place = (one) => Math.max(0, Math.min(steps - 1, Math.floor(one.hit * steps)));
      const classes = Array.from({ length: steps }, (_, at) => chart.areas.filter(
        (one) => place(one) === at));
      const data = classes.map((some, at) => ({
        type: "bar", orientation: "h", width: 1, textposition: "inside", textangle: 0,
        insidetextanchor: "middle", hovertemplate: "%{customdata}<extra></extra>",
        name: known ? `${100 * at / steps} to ${100 * (at + 1) / steps} % hit` : "",
        base: some.map((one) => one.begin), x: some.map((one) => one.size),
        y: some.map((one) => one.depth), text: some.map((one) => one.label),
        customdata: some.map((one) => one.more),
        marker: { color: known ? cividis[at] : "@device", line: { width: 1, color: "@paper" } },
      }));
      return { data: data.filter((one) => one.x.length), layout: {
        height: 460, barmode: "overlay", showlegend: known,
        uniformtext: { minsize: 9, mode: "hide" },
        xaxis: { range: [0, chart.whole], showgrid: false },
        yaxis: { autorange: "reversed", showticklabels: false, showgrid: false },
      } };
    },
  };
  const figureOf = (chart) => {
    const figure = kinds[Object.keys(kinds).find((kind) => kind in chart)](chart);
    const titled = (axis, text) => ({ ...axis, title: { text: text || "" } });
    figure.layout.xaxis = titled(figure.layout.xaxis, chart.x);
    figure.layout.yaxis = titled(figure.layout.yaxis, chart.y);
    return { data: figure.data, layout: { height: 380, ...figure.layout } };
  };

  const shared = (layout, colours, narrow) => {
    const axis = {
      automargin: true, zeroline: false,
      gridcolor: colours.grid, linecolor: colours.grid, tickcolor: colours.grid,
    };
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

  const draw = (id, chart) => {
    const figure = figureOf(chart);
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
    const drawn = Object.entries(page.charts).map(([id, chart]) => draw(id, chart));
    for (const [id, charts] of Object.entries(page.choices)) drawn.push(draw(id, charts[number]));
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

// Draws the charts of the report with plotly, in the colours of the theme; always light on paper.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  // Colours that a reader with any colour vision tells apart: Okabe and Ito, lighter on dark paper.
  const themes = {
    light: {
      paper: "#ffffff", ink: "#1b1f24", grid: "#e1e5ea", mark: "#a3123a",
      lines: ["#0072b2", "#d55e00", "#009e73", "#8e5a8f", "#9a6a00", "#1b1f24", "#2c9fd6"],
    },
    dark: {
      paper: "#14181d", ink: "#e8ebee", grid: "#303841", mark: "#ff8fab",
      lines: ["#56b4e9", "#f58a4b", "#2dc79a", "#cf9bd0", "#f0b429", "#e8ebee", "#9fd3f5"],
    },
  };
  const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

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

  const draw = (id, chart) => {
    const place = document.getElementById(id);
    const width = printing ? 325 : place.clientWidth;  // on paper two stand side by side
    const narrow = width < 520;
    const colours = themes[dark.matches && !printing ? "dark" : "light"];
    const most = Math.min(1.02, 1.1 * Math.max(...chart.lines.flatMap((one) => one.y))) || 1;
    const data = chart.lines.map((one, number) => ({
      type: "scatter", mode: one.x.length <= 40 ? "lines+markers" : "lines",
      name: one.name, x: one.x, y: one.y, marker: { size: 6, symbol: number },
      line: {
        color: colours.lines[number % 7], width: 2.5,
        dash: dashes[Math.floor(number / 7) % dashes.length],
      },
      hovertemplate: "%{x:,.4g}: %{y:.1%}",
    }));
    if (chart.mark) {
      data.push({
        type: "scatter", mode: "lines", name: chart.mark[0], hovertemplate: "%{x:,.4g}",
        x: [chart.mark[1], chart.mark[1]], y: [0, most],
        line: { color: colours.mark, width: 2, dash: "longdash" },
      });
    }
    const axis = {
      automargin: true, zeroline: false,
      gridcolor: colours.grid, linecolor: colours.grid, tickcolor: colours.grid,
    };
    const along = logarithmic(data.flatMap((one) => one.x));
    const layout = {
      height: printing ? 185 : 340 + (narrow ? 30 : 7) * data.length,
      width: printing ? width : undefined, autosize: !printing,
      paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      font: { color: colours.ink, size: printing ? 9 : narrow ? 11 : 13, family: "system-ui, sans-serif" },
      hoverlabel: { bgcolor: colours.paper, font: { color: colours.ink } },
      margin: narrow ? { l: 8, r: 8, t: 8, b: 8 } : { l: 16, r: 16, t: 12, b: 12 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", xanchor: "left" },
      showlegend: data.length > 1,
      xaxis: { ...axis, ...along, title: { text: chart.x } },
      yaxis: { ...axis, tickformat: ".0%", range: [0, most], title: { text: chart.y } },
    };
    const options = { responsive: true, scrollZoom: false, displayModeBar: false };
    return Plotly.react(place, data, layout, options);
  };

  const drawAll = () => Promise.all(Object.entries(charts).map(([id, chart]) => draw(id, chart)));
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
    await drawAll();
    document.documentElement.dataset.drawn = "all";
  };
  begin();
})();

'use strict';
/* The roofline plot: every kernel call a point, under the roofs of the datasheet; below it those with bytes alone. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const PLANE = 1;
  const STRIP = 2;
  const LEFT = 62;
  const RIGHT = 14;
  const TALL = { [PLANE]: 400, [STRIP]: 190 };
  const NEAR = 14; // px within which a point is hit
  const { words } = foretrace;

  const strokeOf = (kind) => {
    const source = document.querySelector('.lanes') || document.documentElement;
    const slug = kind.toLowerCase().replace(/[^a-z0-9]+/g, '-');
    const [hue, strength] = (getComputedStyle(source).getPropertyValue(`--kind-${slug}`).trim() || '260 0.3').split(/\s+/);
    return `oklch(0.64 ${0.17 * Number(strength)} ${hue})`;
  };

  /** Ends of a logarithmic axis that holds the values with some room. */
  function ends(values) {
    let low = Infinity;
    let high = 0;
    for (const value of values) {
      if (value > 0 && value < low) low = value;
      if (value > high) high = value;
    }
    return high ? [low / 1.8, high * 1.8] : [1, 10];
  }

  foretrace.Roofline = class Roofline {
    /**
     * @param {HTMLElement} place
     * @param {{kernels: {document: any, columns: any}, roofs: {label: string, tflops: ?number, gbps: ?number}[],
     *   onPick: (kernel: number) => void}} options
     */
    constructor(place, { kernels, roofs, onPick }) {
      this.place = place;
      this.kernels = kernels;
      this.roofs = roofs;
      this.onPick = onPick;
      this.at = -1;
      this.rows = { [PLANE]: [], [STRIP]: [] };
      kernels.columns.place.forEach((where, row) => this.rows[where] && this.rows[where].push(row));
      this.svg = d3.select(place).append('svg').attr('role', 'application').attr('tabindex', 0);
      this.svg.attr('aria-label', this._label());
      this.canvas = d3.select(place).append('canvas').attr('aria-hidden', 'true').node();
      this.tip = d3.select(place).append('div').attr('class', 'tip').attr('hidden', '');
      this._key();
      this.svg.on('pointermove', (event) => this._hover(d3.pointer(event)));
      this.svg.on('pointerleave', () => this._point(-1));
      this.svg.on('click', (event) => {
        this._hover(d3.pointer(event), 2);
        if (this.at >= 0) onPick(this.at);
      });
      this.svg.on('keydown', (event) => this._keys(event));
      this.observer = new ResizeObserver(() => this.draw());
      this.observer.observe(place);
      new MutationObserver(() => this.draw()).observe(document.documentElement, { attributeFilter: ['data-theme'] });
    }

    _label() {
      const [plane, strip] = [this.rows[PLANE].length, this.rows[STRIP].length];
      return `Roofline plot of ${plane + strip} kernel calls; arrow keys go from one to the next, Enter shows it in the timeline`;
    }

    _key() {
      const { document: said, columns } = this.kernels;
      const many = new Map();
      for (const where of [PLANE, STRIP]) {
        for (const row of this.rows[where]) many.set(columns.kind[row], (many.get(columns.kind[row]) || 0) + 1);
      }
      const key = d3.select(this.place).append('div').attr('class', 'keyed');
      const items = [...many].sort((a, b) => b[1] - a[1]);
      const entry = key.selectAll('span').data(items).join('span');
      entry.append('i').style('background', ([kind]) => strokeOf(said.kind[kind]));
      entry.append('span').text(([kind, count]) => `${said.kind[kind]} ${count}`);
    }

    draw() {
      const width = this.place.clientWidth;
      if (!width) return;
      const drawn = [PLANE, STRIP].filter((where) => this.rows[where].length);
      const height = drawn.reduce((sum, where) => sum + TALL[where], 0);
      this.svg.attr('width', width).attr('height', height).attr('viewBox', `0 0 ${width} ${height}`).selectAll('*').remove();
      const ratio = window.devicePixelRatio || 1;
      Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
      this.spots = [];
      let top = 0;
      for (const where of drawn) {
        this._panel(where, top, width);
        top += TALL[where];
      }
      this.tree = d3.quadtree(this.spots, (spot) => spot.x, (spot) => spot.y);
      this._points(ratio);
    }

    _panel(where, top, width) {
      const { columns } = this.kernels;
      const onPlane = where === PLANE;
      const xs = onPlane ? columns.intensity : columns.bytes;
      const ys = onPlane ? columns.tflops : columns.gbps;
      const rows = this.rows[where];
      const roofs = this.roofs.filter((roof) => (onPlane ? roof.tflops : roof.gbps));
      const bandwidths = onPlane ? this.roofs.filter((roof) => roof.gbps) : [];
      const ridges = bandwidths.flatMap(({ gbps }) => roofs.map(({ tflops }) => (1000 * tflops) / gbps));
      const domain = ends([...rows.map((row) => xs[row]), ...ridges.flatMap((x) => [x / 2, x * 2])]);
      // The bandwidth over the points is in sight, also where no arithmetic peak is.
      const over = d3.extent(rows, (row) => xs[row]);
      const most = Math.max(...roofs.map((roof) => roof.tflops || roof.gbps), 0) || Infinity;
      const slopes = bandwidths.flatMap(({ gbps }) => over.map((at) => Math.min(most, (at * gbps) / 1000)));
      const range = ends([...rows.map((row) => ys[row]), ...roofs.map((roof) => roof.tflops || roof.gbps), ...slopes]);
      const x = d3.scaleLog(domain, [LEFT, width - RIGHT]);
      const y = d3.scaleLog(range, [top + TALL[where] - 42, top + 26]);
      const unit = onPlane ? 'TFLOP/s' : 'GB/s';
      const panel = this.svg.append('g');
      this._axes(panel, x, y, onPlane);
      const title = onPlane ? 'achieved TFLOP/s' : 'achieved GB/s of kernels of which only the bytes are known';
      panel.append('text').attr('class', 'title').attr('x', 4).attr('y', top + 13).text(title);
      const under = onPlane ? 'arithmetic intensity, FLOP a byte' : 'bytes moved in a call';
      panel.append('text').attr('class', 'title').attr('x', width - RIGHT).attr('y', top + TALL[where] - 8)
        .attr('text-anchor', 'end').text(under);
      this._roofs(panel, x, y, roofs, bandwidths, unit);
      for (const row of rows) this.spots.push({ row, x: x(xs[row]), y: y(ys[row]), kind: columns.kind[row] });
    }

    _axes(panel, x, y, onPlane) {
      const [left, right] = x.range();
      const [bottom, top] = y.range();
      const prefix = { P: 1e15, T: 1e12, G: 1e9, M: 1e6, k: 1e3 };
      const short = (value) => {
        const found = Object.entries(prefix).find(([, factor]) => value >= factor);
        return found ? `${+(value / found[1]).toPrecision(3)}${onPlane ? '' : ' '}${found[0]}${onPlane ? '' : 'B'}` : `${+value.toPrecision(3)}`;
      };
      const few = (scale, most) => {
        const [a, b] = scale.domain().map(Math.log10);
        const decades = d3.range(Math.ceil(a), Math.floor(b) + 1);
        const steps = decades.length > 2 || b - a > 2 ? [1] : [1, 2, 5];
        const ticks = d3.range(Math.floor(a), Math.ceil(b)).flatMap((e) => steps.map((s) => s * 10 ** e));
        const inside = [...ticks, 10 ** Math.ceil(b)].filter((v) => v >= scale.domain()[0] && v <= scale.domain()[1]);
        const every = Math.ceil(inside.length / most);
        return inside.filter((_, i) => i % every === 0);
      };
      const [xTicks, yTicks] = [few(x, Math.max(2, (right - left) / 80)), few(y, 7)];
      panel.append('g').selectAll('line').data(xTicks).join('line').attr('class', 'rule')
        .attr('x1', x).attr('x2', x).attr('y1', top).attr('y2', bottom);
      panel.append('g').selectAll('line').data(yTicks).join('line').attr('class', 'rule')
        .attr('y1', y).attr('y2', y).attr('x1', left).attr('x2', right);
      panel.append('g').attr('class', 'axis').attr('transform', `translate(0,${bottom})`)
        .call(d3.axisBottom(x).tickValues(xTicks).tickFormat(short).tickSize(4));
      panel.append('g').attr('class', 'axis').attr('transform', `translate(${left},0)`)
        .call(d3.axisLeft(y).tickValues(yTicks).tickFormat((v) => `${+v.toPrecision(3)}`).tickSize(4));
    }

    _roofs(panel, x, y, roofs, bandwidths, unit) {
      const [low, high] = x.domain();
      const [floor] = y.domain();
      const rate = (roof) => roof.tflops || roof.gbps;
      const most = Math.max(...roofs.map(rate), 0);
      const slopes = bandwidths.map(({ gbps }) => gbps / 1000);
      const steepest = Math.max(...slopes, 0);
      const line = (x1, y1, x2, y2) =>
        panel.append('line').attr('class', 'roof').attr('x1', x(x1)).attr('y1', y(y1)).attr('x2', x(x2)).attr('y2', y(y2));
      const label = (text, px, py, turn, anchor) =>
        panel.append('text').attr('class', 'roof-label').attr('text-anchor', anchor)
          .attr('transform', `translate(${px},${py}) rotate(${turn})`).text(text);
      for (const roof of roofs) {
        const from = steepest ? Math.max(low, rate(roof) / steepest) : low;
        line(from, rate(roof), high, rate(roof));
        const named = x(high) - x(from) > 300 ? `  ${roof.label}` : '';
        label(`${words.number(rate(roof))} ${unit}${named}`, x(high) - 4, y(rate(roof)) - 5, 0, 'end');
      }
      bandwidths.forEach(({ gbps, label: name }, i) => {
        const top = most || y.domain()[1];
        const from = Math.max(low, floor / slopes[i]);
        const to = Math.min(high, top / slopes[i]);
        if (from >= to) return;
        line(from, from * slopes[i], to, to * slopes[i]);
        const [x1, y1, x2, y2] = [x(from), y(from * slopes[i]), x(to), y(to * slopes[i])];
        const turn = (Math.atan2(y2 - y1, x2 - x1) * 180) / Math.PI;
        const length = Math.hypot(x2 - x1, y2 - y1);
        const said = length > 330 ? `${words.number(gbps)} GB/s  ${name}` : length > 90 ? `${words.number(gbps)} GB/s` : '';
        // A little above the line, at its lower end, clear of the ridge.
        const along = 12 / Math.max(length, 1);
        label(said, x1 + (x2 - x1) * along - 5 * Math.sin((-turn * Math.PI) / 180), y1 + (y2 - y1) * along - 6, turn, 'start');
      });
    }

    _points(ratio) {
      const ctx = this.canvas.getContext('2d');
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      const colours = this.kernels.document.kind.map(strokeOf);
      const crowd = this.spots.length;
      const radius = crowd > 5000 ? 2 : crowd > 500 ? 2.6 : 4;
      ctx.globalAlpha = crowd > 5000 ? 0.35 : crowd > 500 ? 0.55 : 0.8;
      for (const { x, y, kind } of this.spots) {
        ctx.fillStyle = colours[kind];
        ctx.beginPath();
        ctx.arc(x, y, radius, 0, 2 * Math.PI);
        ctx.fill();
      }
      this.drawn = crowd;
      this._mark();
    }

    _mark() {
      this.svg.selectAll('.here').remove();
      const spot = this.spots.find(({ row }) => row === this.at);
      if (!spot) return;
      this.svg.append('circle').attr('class', 'here').attr('cx', spot.x).attr('cy', spot.y).attr('r', 7)
        .attr('fill', 'none').attr('stroke', 'var(--ink)').attr('stroke-width', 1.5);
    }

    _hover([x, y], reach = 1) {
      const spot = this.tree && this.tree.find(x, y, NEAR * reach);
      this._point(spot ? spot.row : -1);
    }

    /** Point at a kernel (-1: none) and say what it is. */
    _point(row) {
      if (row === this.at) return;
      this.at = row;
      this._mark();
      this.svg.style('cursor', row >= 0 ? 'pointer' : null);
      if (row < 0) {
        this.tip.attr('hidden', '');
        return;
      }
      const { document: said, columns: c } = this.kernels;
      const spot = this.spots.find((one) => one.row === row);
      const share = c.assisted[row] ? 'cache-assisted' : Number.isNaN(c.of_peak[row]) ? '' : `${words.percent(c.of_peak[row])} % of ${said.peak[c.peak[row]]}`;
      const lines = [
        `${said.kind[c.kind[row]]}, ${words.time(c.duration[row])}${said.op[c.op[row]] ? `, ${said.op[c.op[row]]}` : ''}`,
        c.place[row] === PLANE ? `${words.number(c.tflops[row])} TFLOP/s at ${words.number(c.intensity[row])} FLOP a byte` : `${words.number(c.gbps[row])} GB/s, ${words.bytes(c.bytes[row])}`,
        share,
      ].filter(Boolean);
      this.tip.attr('hidden', null).selectAll('*').remove();
      this.tip.append('b').text(said.short[c.short[row]]);
      this.tip.selectAll('div').data(lines).join('div').text((text) => text);
      const node = this.tip.node();
      const right = spot.x + 16 + node.offsetWidth > this.place.clientWidth;
      node.style.left = `${Math.max(0, right ? spot.x - node.offsetWidth - 12 : spot.x + 14)}px`;
      node.style.top = `${Math.max(0, spot.y - node.offsetHeight / 2)}px`;
    }

    _keys(event) {
      const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (way) {
        const order = [...this.rows[PLANE], ...this.rows[STRIP]];
        const next = (order.indexOf(this.at) + way + order.length) % order.length;
        this._point(order[this.at < 0 ? 0 : next]);
      } else if (event.key === 'Enter' && this.at >= 0) this.onPick(this.at);
      else if (event.key === 'Escape') this._point(-1);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }

    /** Where a kernel is drawn, in CSS pixels from the plot's corner; null where it is not. */
    spotOf(row) {
      const spot = this.spots.find((one) => one.row === row);
      return spot ? { x: spot.x, y: spot.y } : null;
    }
  };
})();

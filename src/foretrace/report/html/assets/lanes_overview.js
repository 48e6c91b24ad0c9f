'use strict';
/* The strip above the lanes: the whole range in small, with the window that the lanes show. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const HEIGHT = 46;
  const MOST_LINES = 14;
  const GRIP = 7;

  foretrace.LanesOverview = class LanesOverview {
    constructor(host) {
      this.host = host;
      this.canvas = document.createElement('canvas');
      this.canvas.className = 'lanes-overview';
      this.canvas.setAttribute('aria-hidden', 'true');
      this.still = document.createElement('canvas');
      this.stale = true;
      this._listen();
    }

    /** Forget the drawn background; after a change of size or theme. */
    refresh() {
      this.stale = true;
    }

    draw(palette) {
      const { host, canvas } = this;
      const { ratio, width, fullWidth } = host;
      if (canvas.width !== Math.round(fullWidth * ratio)) {
        canvas.width = Math.round(fullWidth * ratio);
        canvas.height = Math.round(HEIGHT * ratio);
        canvas.style.height = `${HEIGHT}px`;
        canvas.style.width = `${fullWidth}px`;
        this.stale = true;
      }
      if (this.stale) this._background(palette, width, ratio);
      const ctx = canvas.getContext('2d');
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      ctx.drawImage(this.still, 0, 0);
      const left = host.layout.gutter;
      ctx.setTransform(ratio, 0, 0, ratio, left * ratio, 0);
      const [x0, x1] = this._window(width);
      ctx.fillStyle = palette.ground;
      ctx.globalAlpha = 0.62;
      ctx.fillRect(0, 0, x0, HEIGHT);
      ctx.fillRect(x1, 0, width - x1, HEIGHT);
      ctx.globalAlpha = 1;
      ctx.strokeStyle = palette.accent;
      ctx.lineWidth = 1.5;
      ctx.strokeRect(x0 + 0.75, 0.75, Math.max(2, x1 - x0 - 1.5), HEIGHT - 1.5);
      ctx.fillStyle = palette.accent;
      for (const at of [x0, x1 - 4]) ctx.fillRect(at, HEIGHT / 2 - 8, 4, 16);
      const row = host.selected;
      if (row >= 0) ctx.fillRect(this._x(host.model.start[row], width) - 1, 0, 2, HEIGHT);
    }

    _background(palette, width, ratio) {
      const { model, full } = this.host;
      this.still.width = this.canvas.width;
      this.still.height = this.canvas.height;
      const ctx = this.still.getContext('2d');
      const left = this.host.layout.gutter;
      ctx.scale(ratio, ratio);
      ctx.fillStyle = palette.gutter;
      ctx.fillRect(0, 0, left + width, HEIGHT);
      if (left) {
        ctx.font = foretrace.LANES_FONT;
        ctx.textBaseline = 'middle';
        ctx.fillStyle = palette.soft;
        ctx.fillText(`${this.host.axis.length(model.extent.end - model.extent.start)} in all`, 22, HEIGHT / 2);
        ctx.fillStyle = palette.edge;
        ctx.fillRect(left - 1, 0, 1, HEIGHT);
      }
      ctx.translate(left, 0);
      model.bands.forEach((band, i) => {
        ctx.fillStyle = palette.band;
        ctx.globalAlpha = i % 2 ? 0.55 : 1;
        const from = this._x(band.start, width);
        ctx.fillRect(from, 0, this._x(band.end, width) - from, HEIGHT);
      });
      // Streams tell most; threads get what lines are left.
      const lanes = model.lanes.map((_, i) => i);
      const gpu = lanes.filter((i) => model.lanes[i].side !== 'cpu').slice(0, MOST_LINES);
      const cpu = lanes.filter((i) => model.lanes[i].side === 'cpu').slice(0, Math.max(1, MOST_LINES - gpu.length));
      const shown = [...cpu, ...gpu];
      const line = Math.min(14, (HEIGHT - 8) / Math.max(1, shown.length));
      const top = (HEIGHT - line * shown.length) / 2;
      shown.forEach((lane, i) => {
        // Where a row lies below another, the inner one is the more telling.
        const depth = model.lanes[lane].side === 'cpu' ? Math.min(1, model.depths[lane] - 1) : 0;
        const y = top + i * line;
        for (let d = 0; d <= depth; d++) {
          model.walk(model.firstTrack[lane] + d, full, width, (x0, x1, row, count, busy) => {
            ctx.fillStyle = palette.fills[model.kind[row]][0];
            ctx.globalAlpha = 0.35 + 0.65 * busy;
            ctx.fillRect(x0, y, Math.max(1, x1 - x0), Math.max(1, line - 1.5));
          });
        }
      });
      ctx.globalAlpha = 1;
      this.stale = false;
    }

    _x(time, width) {
      const { start, end } = this.host.full;
      return ((time - start) / (end - start)) * width;
    }

    _window(width) {
      const { view } = this.host;
      const x0 = Math.max(0, this._x(view.start, width));
      return [Math.min(x0, width - 6), Math.min(width, Math.max(x0 + 6, this._x(view.end, width)))];
    }

    _listen() {
      const { canvas, host } = this;
      let drag = null;
      const timeAt = (event) => {
        const box = canvas.getBoundingClientRect();
        const share = (event.clientX - box.left - host.layout.gutter) / host.width;
        return host.full.start + share * (host.full.end - host.full.start);
      };
      const partAt = (event) => {
        const box = canvas.getBoundingClientRect();
        const [x0, x1] = this._window(host.width);
        const x = event.clientX - box.left - host.layout.gutter;
        if (Math.abs(x - x0) <= GRIP) return 'start';
        if (Math.abs(x - x1) <= GRIP) return 'end';
        return x > x0 && x < x1 ? 'all' : 'none';
      };
      canvas.addEventListener('pointerdown', (event) => {
        if (event.button) return;
        canvas.setPointerCapture(event.pointerId);
        const part = partAt(event);
        const time = timeAt(event);
        const half = (host.target.end - host.target.start) / 2;
        if (part === 'none') host.moveTo(time - half, time + half);
        drag = { part: part === 'none' ? 'all' : part, time, view: { ...host.target } };
      });
      canvas.addEventListener('pointermove', (event) => {
        const part = partAt(event);
        canvas.style.cursor = drag || part === 'all' ? 'grab' : part === 'none' ? 'pointer' : 'ew-resize';
        if (!drag) return;
        const moved = timeAt(event) - drag.time;
        const { start, end } = drag.view;
        if (drag.part === 'all') host.moveTo(start + moved, end + moved, true);
        else if (drag.part === 'start') host.moveTo(Math.min(start + moved, end - host.axis.finest), end, true);
        else host.moveTo(start, Math.max(end + moved, start + host.axis.finest), true);
      });
      for (const kind of ['pointerup', 'pointercancel']) canvas.addEventListener(kind, () => (drag = null));
      canvas.addEventListener('dblclick', () => host.reset());
    }
  };
})();

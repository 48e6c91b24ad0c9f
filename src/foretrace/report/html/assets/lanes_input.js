'use strict';
/* Mouse, wheel, touch and keys of a lanes view. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const CLICK = 4; // pixels a pointer may move and still click
  const STEP = 1.35; // of one key press of zoom
  const SHIFT = 0.15; // of the view, of one key press of panning

  foretrace.LanesInput = class LanesInput {
    constructor(host) {
      this.host = host;
      this.pointers = new Map();
      this.drag = null;
      this.hover = null; // x and y of the pointer over the canvas
      const { canvas } = host;
      canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
      canvas.addEventListener('pointerdown', (event) => this.down(event));
      canvas.addEventListener('pointermove', (event) => this.move(event));
      canvas.addEventListener('pointerup', (event) => this.up(event));
      canvas.addEventListener('pointercancel', (event) => this.forget(event));
      canvas.addEventListener('pointerleave', () => this.leave());
      canvas.addEventListener('dblclick', (event) => this.twice(event));
      canvas.addEventListener('keydown', (event) => this.key(event));
    }

    point(event) {
      const box = this.host.canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    }

    inPlot({ x, y }) {
      return x >= this.host.layout.gutter && y >= 0;
    }

    wheel(event) {
      const { host } = this;
      const at = this.point(event);
      if (!this.inPlot(at)) return;
      const pixels = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? host.height : 1;
      const dx = event.deltaX * pixels;
      const dy = event.deltaY * pixels;
      const zooms = event.ctrlKey || event.metaKey;
      if (!zooms && (event.shiftKey || Math.abs(dx) > Math.abs(dy))) {
        event.preventDefault();
        host.pan((event.shiftKey && !dx ? dy : dx) / host.width, true);
      } else if (zooms || (document.activeElement === host.canvas && !(dy > 0 && host.showsAll()))) {
        event.preventDefault();
        // A pinch of a trackpad comes as small steps with ctrl.
        const strength = zooms && Math.abs(dy) < 40 ? 0.01 : 0.0022;
        host.zoomBy(Math.exp(Math.max(-240, Math.min(240, dy)) * strength), host.timeAt(at.x), true);
      }
      this.showTip(event);
    }

    down(event) {
      if (event.button) return;
      const { host } = this;
      const at = this.point(event);
      host.canvas.focus({ preventScroll: true });
      this.pointers.set(event.pointerId, at);
      host.canvas.setPointerCapture(event.pointerId);
      if (this.pointers.size === 2) {
        this.drag = { pinch: this._pinch(), view: { ...host.target } };
        return;
      }
      const range = event.shiftKey && this.inPlot(at);
      this.drag = { at, last: at, moved: false, range, from: host.timeAt(at.x), touch: event.pointerType === 'touch' };
      if (range) host.setRange(null);
    }

    _pinch() {
      const [a, b] = [...this.pointers.values()];
      return { apart: Math.max(10, Math.abs(a.x - b.x)), middle: (a.x + b.x) / 2 };
    }

    move(event) {
      const { host, drag } = this;
      const at = this.point(event);
      this.hover = at;
      if (!this.pointers.has(event.pointerId)) {
        this.showTip(event);
        return;
      }
      this.pointers.set(event.pointerId, at);
      if (!drag) return;
      if (drag.pinch && this.pointers.size === 2) {
        const now = this._pinch();
        const { start, end } = drag.view;
        const span = ((end - start) * drag.pinch.apart) / now.apart;
        const fixed = start + ((drag.pinch.middle - host.layout.gutter) / host.width) * (end - start);
        const from = fixed - ((now.middle - host.layout.gutter) / host.width) * span;
        host.moveTo(from, from + span, true);
        return;
      }
      if (drag.pinch) return;
      if (!drag.moved && Math.hypot(at.x - drag.at.x, at.y - drag.at.y) < CLICK) return;
      drag.moved = true;
      host.tip.hidden = true;
      if (drag.range) {
        const to = host.timeAt(Math.max(host.layout.gutter, at.x));
        host.setRange({ start: Math.min(drag.from, to), end: Math.max(drag.from, to) });
      } else {
        host.canvas.style.cursor = 'grabbing';
        host.pan((drag.last.x - at.x) / host.width, true);
        // On touch screens the browser scrolls up and down by itself.
        if (!drag.touch) host.scroller.scrollTop += drag.last.y - at.y;
      }
      drag.last = at;
    }

    up(event) {
      const { host, drag } = this;
      const at = this.point(event);
      this.forget(event);
      if (!drag || drag.pinch) return;
      if (drag.range && drag.moved) host.tellRange();
      else if (!drag.moved) host.choose(host.rowAt(at.x, at.y));
    }

    forget(event) {
      this.pointers.delete(event.pointerId);
      if (!this.pointers.size) this.drag = null;
      this.host.canvas.style.cursor = '';
    }

    leave() {
      this.hover = null;
      this.host.tip.hidden = true;
      this.host.cursor.hidden = true;
    }

    twice(event) {
      const { x, y } = this.point(event);
      const row = this.host.rowAt(x, y);
      if (row >= 0) this.host.select(row, { zoom: true });
    }

    showTip(event) {
      const { host } = this;
      const at = this.point(event);
      const inside = this.inPlot(at) && event.pointerType !== 'touch';
      host.cursor.hidden = !inside;
      if (inside) host.cursor.style.transform = `translateX(${Math.round(at.x)}px)`;
      const row = inside ? host.rowAt(at.x, at.y) : -1;
      host.canvas.style.cursor = row >= 0 ? 'pointer' : '';
      host.panel.tip(row, at);
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const { host } = this;
      const at = this.hover && this.inPlot(this.hover) ? host.timeAt(this.hover.x) : host.middle();
      const step = event.shiftKey && event.key.startsWith('Arrow') ? 4 * SHIFT : SHIFT;
      const acts = {
        w: () => host.zoomBy(1 / STEP, at),
        '+': () => host.zoomBy(1 / STEP, at),
        '=': () => host.zoomBy(1 / STEP, at),
        s: () => host.zoomBy(STEP, at),
        '-': () => host.zoomBy(STEP, at),
        a: () => host.pan(-step),
        ArrowLeft: () => host.pan(-step),
        d: () => host.pan(step),
        ArrowRight: () => host.pan(step),
        ArrowUp: () => host.steps.track(-1),
        ArrowDown: () => host.steps.track(1),
        '[': () => host.steps.row(-1),
        ']': () => host.steps.row(1),
        f: () => host.selected >= 0 && host.select(host.selected, { zoom: true }),
        0: () => host.reset(),
        Home: () => host.reset(),
        '/': () => host.panel.focusSearch(),
        '?': () => host.panel.toggleHelp(),
        Escape: () => host.clear(),
      };
      const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }
  };
})();
